//! Opening a group, and one call that opens, operates and closes.
//!
//! A group opens on every host or on none, unless `O_BESTEFFORT` is set. Opening has two steps:
//! files are emptied, and created files are kept, only after all members are open
//! ([`Request::Settle`]). So an operation that changes something never travels as one trip.
//!
//! TBON-FS, section 2.1: `gopen` takes a directory, and its two modes are the default and
//! `O_BESTEFFORT`. Sheaf also opens a pattern on a set of hosts. The paper leaves the effects of a
//! failed `gopen` open. Here it leaves no created and no emptied file.
use super::group::{self, Group, Reading, check_count, outcome};
use super::layout::MemberLayout;
use super::{Client, Outcome, errors_of};
use crate::aggregate::{ErrorClass, Partial, StatusSum};
use crate::error::GroupError;
use crate::flags::O_BESTEFFORT;
use crate::message::{OpenMessage, Operation, Request};
use crate::observed;
use crate::server::GROUPS;
use sheaf_core::observer::{self, Begun, Ending, Layer};
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::Stream;

impl Client {
    /// Opens `path`, which may be a pattern, on every host of `members`. `flags` are those of
    /// `open(2)` and [`crate::flags`]; files are created with `mode`.
    ///
    /// # Errors
    /// [`GroupError::Members`] when any file does not open (with `O_BESTEFFORT`: when none does),
    /// or when a pattern stands for no file on any host (`ENOENT`). What the call created on
    /// other hosts is removed again then, and no file is emptied. [`GroupError::UnknownLeaf`]
    /// when a member is no leaf of the session.
    pub async fn gopenat(
        &self,
        members: &RangeSet,
        path: &str,
        flags: u32,
        mode: u32,
    ) -> Result<Group, GroupError> {
        self.gopen_with(members, OpenMessage::new(vec![path.to_owned()], flags, mode)).await
    }

    /// Opens every file in the directory `dir` of every host of `members`: a snapshot. `dir` is a
    /// name, not a pattern. Entries that are directories, and links to such, are not files of the
    /// group.
    ///
    /// # Errors
    /// As [`Client::gopenat`].
    pub async fn gopen(
        &self,
        members: &RangeSet,
        dir: &str,
        flags: u32,
        mode: u32,
    ) -> Result<Group, GroupError> {
        self.gopen_with(members, OpenMessage::entries_of(vec![dir.to_owned()], flags, mode)).await
    }

    /// Opens what `open` names.
    ///
    /// What opening changes (files that `O_CREAT` makes, contents that `O_TRUNC` drops) is changed
    /// for good only when it is known that the group opens, in a second trip.
    ///
    /// With `O_BESTEFFORT` files are emptied as they open: one member is enough for the group.
    ///
    /// **Dropped:** before the second trip, files that were made are removed again, and without
    /// `O_BESTEFFORT` none has been emptied; during it, all hosts bring it to its end.
    ///
    /// # Errors
    /// As [`Client::gopenat`].
    pub async fn gopen_with(
        &self,
        members: &RangeSet,
        open: OpenMessage,
    ) -> Result<Group, GroupError> {
        let stream = self.stream(GROUPS, members)?;
        let observed = observer::observe(|| begun_on(&open, "group.open", &stream, members));
        let opened = self.open_members(stream, members, open).await;
        observed.end(|| observed::ending_of(&opened, |group| observed::errno(&group.opened)));
        opened
    }

    async fn open_members(
        &self,
        stream: Stream,
        members: &RangeSet,
        open: OpenMessage,
    ) -> Result<Group, GroupError> {
        let (flags, settles) = (open.flags, open.changes_files());
        let open_of = open.of_hosts.clone();
        let request = Request::Open { open, then: None, close: false };
        let (mut partial, mut wave) = self.ask(&stream, &request, b"").await?;
        self.fail_wrong(&mut partial, &mut wave, members, |_| false);
        drop_unmatched(&mut partial, &open_of);
        let mut opened = outcome(&mut partial, &wave, members);
        let layout = MemberLayout::new(&partial.counts);
        if settles && has_opened(flags, &opened, &layout) {
            let (mut settled, wave) = self.insist(&stream, &Request::Settle).await?;
            if flags & O_BESTEFFORT == 0 {
                opened.merge_failures(outcome(&mut settled, &wave, &layout.leaves()));
            }
        }
        if !has_opened(flags, &opened, &layout) {
            let (mut undone, _) = self.insist(&stream, &Request::Close { undo: true }).await?;
            errors_of(&mut undone).into_iter().for_each(|error| opened.add_error(error));
            return Err(GroupError::Members(Box::new(opened)));
        }
        // A host without members has nothing to say in later operations, also when it is lost.
        let members = layout.leaves();
        Ok(Group::new(self, stream, members, flags, layout, opened))
    }

    /// Opens, does one operation and closes. What changes nothing on any host is one trip through
    /// the tree; what does (an operation that writes, `O_CREAT`, `O_TRUNC`, a read from a pipe or
    /// device) takes a trip for each, so that nothing is changed unless the group opens.
    ///
    /// The outcome also names, with `O_BESTEFFORT`, the files that are not members.
    ///
    /// **Dropped:** each host has done all of it, or a part, or nothing; the answer is thrown away.
    ///
    /// # Errors
    /// As [`Client::gopenat`] and the operation.
    pub async fn once(
        &self,
        members: &RangeSet,
        open: OpenMessage,
        operation: Operation,
        data: &[u8],
    ) -> Result<Reading, GroupError> {
        check_count(&operation)?;
        if open.changes_files() || operation.changes_files() {
            return self.in_turn(members, open, operation, data).await;
        }
        let stream = self.stream(GROUPS, members)?;
        let observed = observer::observe(|| {
            let begun = observed::begun(&operation, Layer::Group, data);
            Begun {
                offset: begun.offset,
                asked: begun.asked,
                ..begun_on(&open, begun.kind, &stream, members)
            }
        });
        let at_once = self.at_once(stream, members, &open, &operation, data).await;
        match at_once.transpose() {
            Some(result) => {
                observed.end(|| observed::ending(&operation, &result));
                result
            }
            None => {
                observed.end(|| Ending::failed(Errno::AGAIN));
                self.in_turn(members, open, operation, data).await
            }
        }
    }

    /// [`Client::once`] in one trip; nothing where it takes more.
    async fn at_once(
        &self,
        stream: Stream,
        members: &RangeSet,
        open: &OpenMessage,
        operation: &Operation,
        data: &[u8],
    ) -> Result<Option<Reading>, GroupError> {
        let flags = open.flags;
        let request =
            Request::Open { open: open.clone(), then: Some(operation.clone()), close: true };
        let (mut partial, mut wave) = self.ask(&stream, &request, data).await?;
        let (_, how) = group::defaults(operation);
        self.fail_wrong(&mut partial, &mut wave, members, |data| group::is_of(data, how));
        // Hosts whose answers cannot be combined may have opened all the same.
        let is_unclear = wave.coverage.failed.iter().any(|(errno, _)| *errno == Errno::MSGSIZE);
        if is_unclear || !partial.more.is_empty() {
            return Ok(None);
        }
        let mut of_opening =
            Partial { errors: std::mem::take(&mut partial.unopened), ..Partial::default() };
        std::mem::swap(&mut of_opening.counts, &mut partial.counts);
        drop_unmatched(&mut of_opening, &open.of_hosts);
        let layout = MemberLayout::new(&of_opening.counts);
        of_opening.status = StatusSum { count: layout.size(), ..StatusSum::default() };
        let opened = outcome(&mut of_opening, &wave, members);
        if !has_opened(flags, &opened, &layout) {
            return Err(GroupError::Members(Box::new(opened)));
        }
        let members = layout.leaves();
        let group = Group::new(self, stream, members, flags, layout, Outcome::default());
        group.check_len(operation)?;
        with_failures(group.conclude(operation, partial, wave).await, opened).map(Some)
    }

    /// [`Client::once`] with a trip for each step.
    async fn in_turn(
        &self,
        members: &RangeSet,
        open: OpenMessage,
        operation: Operation,
        data: &[u8],
    ) -> Result<Reading, GroupError> {
        let mut group = self.gopen_with(members, open).await?;
        let opened = std::mem::take(&mut group.opened);
        let result = with_failures(group.operate(operation, data).await, opened);
        let closed = group.close().await;
        let reading = result?;
        let closed = closed?.outcome;
        with_failures(Ok(reading), closed)
    }
}

/// What an observer is told of opening.
fn begun_on<'a>(
    open: &'a OpenMessage,
    kind: &'static str,
    stream: &Stream,
    members: &RangeSet,
) -> Begun<'a> {
    let name = open.paths.first().or(open.of_hosts.first().map(|(_, path)| path));
    let name = name.map_or(&b""[..], |path| path.as_bytes());
    Begun { name, stream: stream.id(), members: members.len(), ..Begun::new(kind, Layer::Group) }
}

/// Whether what opened is a group: all, or with `O_BESTEFFORT` some.
fn has_opened(flags: u32, opened: &Outcome, layout: &MemberLayout) -> bool {
    opened.is_ok() || (flags & O_BESTEFFORT != 0 && layout.size() > 0)
}

/// A result that also tells of these failures.
fn with_failures(
    result: Result<Reading, GroupError>,
    failures: Outcome,
) -> Result<Reading, GroupError> {
    match result {
        Ok(mut reading) => {
            reading.outcome.merge_failures(failures);
            Ok(reading)
        }
        Err(error) => Err(error.with_failures(failures)),
    }
}

/// A pattern that stands for nothing on any host is an error of all that looked, and no error of
/// those where it stands for nothing while others have something. `of_hosts` says which hosts look
/// for which pattern, if not all do.
fn drop_unmatched(partial: &mut Partial, of_hosts: &[(RangeSet, String)]) {
    let mut there = RangeSet::new();
    partial.counts.iter().for_each(|(_, more)| there.union_with(more));
    for error in std::mem::take(&mut partial.errors) {
        let mut looked = there.clone();
        if !of_hosts.is_empty() {
            let mut asked = RangeSet::new();
            let same = of_hosts.iter().filter(|(_, path)| *path == error.path);
            same.for_each(|(hosts, _)| asked.union_with(hosts));
            looked = looked.intersection(&asked);
        }
        match error.errno {
            Errno::NOMATCH if !looked.is_subset(&error.members.leaves()) => {}
            Errno::NOMATCH => partial.add_error(ErrorClass { errno: Errno::NOENT, ..error }),
            _ => partial.add_error(error),
        }
    }
}
