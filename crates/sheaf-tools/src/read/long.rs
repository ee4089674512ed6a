//! Contents that are longer than what one read takes: their digests come first, and then each
//! distinct one is read piece by piece from a host that has it.
use super::{Addressed, Combined, Content, ReadOptions, Readout, through};
use crate::report::{Piece, Summary, fetch};
use crate::target::ToolError;
use sheaf_core::Errno;
use sheaf_file::Digest;
use sheaf_group::message::DataAggregation;
use sheaf_group::{Client, GroupError};

/// Whether contents of any length can be read with this aggregation.
pub(super) fn is_for(aggregate: &DataAggregation, options: &ReadOptions) -> bool {
    let whole = options.count.is_none() && options.offset == 0;
    whole && matches!(aggregate, DataAggregation::Equal | DataAggregation::Contents { .. })
}

/// Reads `files`, where together the distinct contents fit the session's bound.
pub(super) async fn read(
    client: &Client,
    files: &Addressed,
    options: &ReadOptions,
    aggregate: &DataAggregation,
) -> Result<Readout, ToolError> {
    let digests = DataAggregation::Checksum;
    let mut readout = through::read(client, files, options, &digests).await?;
    let Combined::Classes(mut contents) = std::mem::replace(&mut readout.data, Combined::None)
    else {
        return Ok(readout);
    };
    let equal = *aggregate == DataAggregation::Equal;
    if equal && contents.len() > 1 {
        let outcome = Box::new(readout.outcome);
        return Err(GroupError::Differ { classes: contents.len(), outcome }.into());
    }
    let bytes_max = client.limits().bytes_max;
    if contents.iter().map(|content| content.len).sum::<u64>() > bytes_max {
        return Err(GroupError::TooLarge { bytes_max }.into());
    }
    for content in &mut contents {
        match body(client, content).await? {
            Ok(body) => content.body = Some(body),
            // Its digest is known; who has it is told that the content could not be had.
            Err(errno) => content.files.iter().for_each(|(path, leaves)| {
                let status = &mut readout.outcome.status;
                status.count = status.count.saturating_sub(leaves.len());
                readout.outcome.add_path_error(errno, path, leaves.clone());
            }),
        }
    }
    readout.data = match contents.pop() {
        Some(Content { body, .. }) if equal => Combined::Bytes(body.unwrap_or_default()),
        last => {
            contents.extend(last);
            Combined::Classes(contents)
        }
    };
    Ok(readout)
}

async fn body(client: &Client, content: &Content) -> Result<Result<Vec<u8>, Errno>, ToolError> {
    let Some((path, leaves)) = content.files.first() else { return Ok(Err(Errno::NOENT)) };
    let summary = Summary { digest: Digest(content.digest.to_vec()), len: content.len };
    let (path, none) = (path.as_bytes(), &b""[..]);
    let piece = Piece { path, leaves, at: 0, bytes: none, is_last: false, same_hosts: true };
    let mut body = Vec::new();
    let fetched = fetch(client, piece, &summary, &mut |piece| {
        body.extend_from_slice(piece.bytes);
        Ok(())
    })
    .await?;
    Ok(fetched.map(|()| body))
}
