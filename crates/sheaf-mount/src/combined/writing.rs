//! Writing to all files of a group.
use super::contents::{by_members, errno_of, told};
use rustix::fs::OFlags;
use sheaf_core::Errno;
use sheaf_group::message::OpenMessage;
use sheaf_group::{Client, Group, GroupError, Outcome, Reading, Target};
use tokio::sync::Mutex;

/// What there is to say of an error, and what programs are told.
type WriteFailed = (String, Errno);

/// Files of a group that are written to.
pub(crate) struct GroupWriting {
    /// Whose it is.
    pub session: Option<u32>,
    groups: Mutex<Vec<Group>>,
    appends: bool,
}

impl GroupWriting {
    /// Opens all; if one does not open none is changed.
    pub async fn open(
        client: &Client,
        targets: &[Target],
        flags: OFlags,
        session: Option<u32>,
    ) -> Result<Self, WriteFailed> {
        let appends = flags.contains(OFlags::APPEND);
        let own = OFlags::WRONLY | (flags & (OFlags::TRUNC | OFlags::APPEND | OFlags::SYNC));
        let sets = by_members(targets);
        if sets.is_empty() {
            return Err(("write data: the group has no files\n".to_owned(), Errno::NOENT));
        }
        // Nothing is emptied as long as some may not open.
        if sets.len() > 1 && own.contains(OFlags::TRUNC) {
            for (hosts, paths) in &sets {
                let open = OpenMessage::new(paths.clone(), (own - OFlags::TRUNC).bits(), 0);
                let tried = client.gopen_with(hosts, open).await;
                let tried = tried.map_err(|error| failed(client, "open data", &error))?;
                tried.close().await.map_err(|error| failed(client, "open data", &error))?;
            }
        }
        let mut groups = Vec::new();
        for (hosts, paths) in sets {
            let opened = client.gopen_with(&hosts, OpenMessage::new(paths, own.bits(), 0)).await;
            groups.push(opened.map_err(|error| failed(client, "open data", &error))?);
        }
        Ok(Self { session, groups: Mutex::new(groups), appends })
    }

    /// Writes the same to each.
    pub async fn write(
        &self,
        client: &Client,
        data: &[u8],
        offset: u64,
    ) -> Result<(), WriteFailed> {
        let groups = self.groups.lock().await;
        let mut all = Outcome::default();
        for group in &*groups {
            let written = match self.appends {
                true => group.write(data).await,
                false => group.pwrite(data, offset).await,
            };
            let expected = data.len() as u64;
            match take(written, client, "write data", &mut all)? {
                Some(read) if read.outcome.status.min != expected => {
                    let text = format!(
                        "write data: {} of {expected} bytes were written somewhere\n",
                        read.outcome.status.min
                    );
                    return Err((text, Errno::IO));
                }
                _ => {}
            }
        }
        whole(client, "write data", &all)
    }

    pub async fn sync(&self, client: &Client) -> Result<(), WriteFailed> {
        let groups = self.groups.lock().await;
        let mut all = Outcome::default();
        for group in &*groups {
            take(group.fsync().await, client, "sync data", &mut all)?;
        }
        whole(client, "sync data", &all)
    }

    /// Closes all; what became of that, in words.
    pub async fn close(&self, client: &Client) -> String {
        let groups = std::mem::take(&mut *self.groups.lock().await);
        let mut all = Outcome::default();
        for group in groups {
            if let Err((text, _)) = take(group.close().await, client, "write data", &mut all) {
                return text;
            }
        }
        told(client, "write data", &all, &[])
    }
}

/// Takes in what an operation came to.
fn take(
    result: Result<Reading, GroupError>,
    client: &Client,
    what: &str,
    all: &mut Outcome,
) -> Result<Option<Reading>, WriteFailed> {
    match result {
        Ok(reading) => {
            all.merge(reading.outcome.clone());
            Ok(Some(reading))
        }
        Err(GroupError::Members(outcome)) => {
            all.merge(*outcome);
            Ok(None)
        }
        Err(error) => Err(failed(client, what, &error)),
    }
}

fn whole(client: &Client, what: &str, all: &Outcome) -> Result<(), WriteFailed> {
    if all.is_ok() { Ok(()) } else { Err((told(client, what, all, &[]), errno_of(all))) }
}

fn failed(client: &Client, what: &str, error: &GroupError) -> WriteFailed {
    match error {
        GroupError::Members(outcome) => (told(client, what, outcome, &[]), errno_of(outcome)),
        error => (format!("{what}: {error}\n"), super::system(error.errno())),
    }
}
