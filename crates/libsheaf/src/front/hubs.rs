//! Whether back ends can attach themselves everywhere, and else why not.
use crate::error::{Error, ErrorCode};
use crate::plan::BackEndPlan;
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::filter::builtin::null;
use sheaf_tree::proto::own;
use sheaf_tree::{StreamError, WaveResult};
use std::time::Duration;

/// Notes where each hub listens, by their answers to who asked for that.
///
/// # Errors
/// [`ErrorCode::Launch`], with the hosts and what each of them came to; [`ErrorCode::Ended`],
/// [`ErrorCode::Packet`].
pub(super) fn take_ports(
    plan: &mut BackEndPlan,
    answers: Result<WaveResult, StreamError>,
    patience: Duration,
) -> Result<(), Error> {
    let late = format!("within {} s", patience.as_secs_f32());
    let result = match answers {
        Ok(result) => result,
        Err(StreamError::TimedOut) => {
            let text = format!("no node has said {late} where back ends attach themselves");
            return Err(Error::new(ErrorCode::Launch, text));
        }
        Err(error) => {
            let text = format!("before back ends could attach themselves, {error}");
            return Err(Error::new(ErrorCode::Ended, text));
        }
    };
    let other = || {
        let text =
            "a node does not say where back ends attach themselves: it is of another version";
        Error::new(ErrorCode::Packet, text)
    };
    let answers = result.payload.unwrap_or_default();
    for answer in null::items(&answers).map_err(|_| other())? {
        let &[a, b, c, d, e, f] = answer else { return Err(other()) };
        let port = u16::from_le_bytes([e, f]);
        plan.set_port(u32::from_le_bytes([a, b, c, d]), port);
    }
    let failed = result.coverage.failed.iter().map(|(errno, leaves)| {
        let why = if *errno == Errno::NOSYS {
            "it is another program, or of another version".to_owned()
        } else {
            format!("it cannot listen: {errno}")
        };
        (why, leaves)
    });
    let silent = result.coverage.silent.iter().map(|(errno, leaves)| {
        let is_late = *errno == Errno::TIMEDOUT;
        let why =
            if is_late { format!("no answer {late}") } else { format!("it is lost: {errno}") };
        (why, leaves)
    });
    let told: Vec<String> = failed
        .chain(silent)
        .map(|(why, leaves)| format!("{}: {why}", hosts(plan, leaves)))
        .collect();
    let without = plan.hubs().iter().any(|&rank| plan.place(rank).is_none_or(|hub| hub.port == 0));
    match told.is_empty() {
        true if without => Err(other()),
        true => Ok(()),
        false => {
            let text = format!("back ends cannot attach themselves: {}", told.join("; "));
            Err(Error::new(ErrorCode::Launch, text))
        }
    }
}

/// The hubs whose own leaves these are, as people know them.
fn hosts(plan: &BackEndPlan, leaves: &RangeSet) -> String {
    let hubs = plan.hubs().into_iter().filter(|&rank| leaves.contains(own::leaf_of(rank)));
    let name = |rank| plan.place(rank).map_or(String::new(), |hub| hub.host.clone());
    let names: Vec<String> = hubs.map(|rank| format!("{} (rank {rank})", name(rank))).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_core::varint;
    use sheaf_tree::Coverage;

    fn plan() -> BackEndPlan {
        BackEndPlan::parse("a:0 => b:1 c:2 ;", true).unwrap()
    }

    fn answer(coverage: Coverage, ports: &[(u32, u16)]) -> Result<WaveResult, StreamError> {
        let mut payload = Vec::new();
        for (rank, port) in ports {
            let answer = [&rank.to_le_bytes()[..], &port.to_le_bytes()].concat();
            varint::put_bytes(&mut payload, &answer);
        }
        let payload = Some(payload.into());
        Ok(WaveResult { wave: 0, tag: 0, complete: true, coverage, payload })
    }

    fn told(answers: Result<WaveResult, StreamError>) -> (ErrorCode, String) {
        let error = take_ports(&mut plan(), answers, Duration::from_secs(3)).unwrap_err();
        (error.code, error.message)
    }

    #[test]
    fn back_end_attach_errors_name_ranks_and_causes() {
        let (one, both) =
            (RangeSet::single(own::leaf_of(2)), [1, 2].map(own::leaf_of).into_iter().collect());
        let launch = |text: &str| (ErrorCode::Launch, text.to_owned());
        let failed = |errno| Coverage { failed: vec![(errno, one.clone())], ..Coverage::default() };
        assert_eq!(
            told(answer(failed(Errno::MFILE), &[(1, 7)])),
            launch(
                "back ends cannot attach themselves: c (rank 2): it cannot listen: Too many open \
                 files (EMFILE)"
            )
        );
        assert_eq!(
            told(answer(failed(Errno::NOSYS), &[(1, 7)])),
            launch(
                "back ends cannot attach themselves: c (rank 2): it is another program, or of \
                 another version"
            )
        );
        let silent =
            |errno, leaves| Coverage { silent: vec![(errno, leaves)], ..Coverage::default() };
        assert_eq!(
            told(answer(silent(Errno::TIMEDOUT, both), &[])),
            launch(
                "back ends cannot attach themselves: b (rank 1), c (rank 2): no answer within 3 s"
            )
        );
        assert_eq!(
            told(answer(silent(Errno::HOSTDOWN, one.clone()), &[(1, 7)])),
            launch(
                "back ends cannot attach themselves: c (rank 2): it is lost: Host is down \
                 (EHOSTDOWN)"
            )
        );
        assert_eq!(
            told(Err(StreamError::TimedOut)),
            launch("no node has said within 3 s where back ends attach themselves")
        );
        assert_eq!(told(Err(StreamError::Ended)).0, ErrorCode::Ended);
        assert_eq!(told(answer(Coverage::default(), &[(1, 7)])).0, ErrorCode::Packet);
        let mut plan = plan();
        let all = answer(Coverage::default(), &[(1, 7), (2, 8)]);
        assert_eq!(take_ports(&mut plan, all, Duration::from_secs(3)), Ok(()));
        assert_eq!(plan.place(2).unwrap().port, 8);
    }
}
