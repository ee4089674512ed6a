//! A group: an ordered set of open files on many hosts, used like one.
use super::layout::MemberLayout;
use super::{Class, Client, Outcome, errors_of, fetch, too_large};
use crate::aggregate::{
    Classes, Data, LabelAt, NUMBERS_MAX, NumberAt, NumberOp, Packed, Partial, StatusAggregation,
};
use crate::entry::{ANSWER_BYTES_MAX, Merged};
use crate::error::GroupError;
use crate::flags::O_PARTIAL;
use crate::message::{DataAggregation, Operation, READ_BYTES_MAX, Request, Whence};
use crate::observed;
use crate::stat::Stat;
use sheaf_core::observer::{self, Begun, Layer};
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_tree::{Stream, WaveResult};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use tokio::sync::{Mutex, MutexGuard};

/// An open group of files (paper §2.1). Closed when dropped; [`Group::close`] says how that went.
///
/// Any number of tasks may use a group at once. Its operations reach every member in one order,
/// that in which their futures were first polled, and each has its own answer.
///
/// # Dropping a future
/// An operation whose future is dropped leaves the group as usable as before. It is done by all
/// members, in its turn, or by none: by none when the future was never polled, or was dropped while
/// the request still waited to be sent (behind others, or, if it is long, for room under way);
/// otherwise by all, and the answer is thrown away when it comes. So a dropped `read` may have
/// moved offsets and a dropped `write` may have written; [`Group::statuses`] gives what the members
/// came to.
pub struct Group {
    client: Client,
    stream: Stream,
    /// Held while a request waits to be sent, by one after the other.
    turn: Mutex<()>,
    /// Held by the operation whose bodies the servers keep, until it has fetched them.
    bodies: Mutex<()>,
    members: RangeSet,
    flags: u32,
    layout: MemberLayout,
    pub(super) opened: Outcome,
}

/// What an operation gave.
#[derive(Debug)]
pub struct Reading {
    /// The group's status, by the operation's default aggregation (paper, Table 2).
    pub status: i64,
    /// The members' data, combined.
    pub value: Value,
    /// Who succeeded and who did not.
    pub outcome: Outcome,
    /// The hosts of which at least one member did the operation: `value` is theirs alone.
    pub contributors: RangeSet,
    /// The text beside the numbers of `value` that all members share, where it was asked for.
    pub labels: Vec<LabelAt>,
    layout: MemberLayout,
}

impl Reading {
    /// The leaf of the member with this index, and its place there.
    #[must_use]
    pub fn member(&self, index: u64) -> Option<(u32, u32)> {
        self.layout.member(index)
    }

    /// The index of a member.
    #[must_use]
    pub fn index(&self, leaf: u32, local: u32) -> Option<u64> {
        self.layout.index(leaf, local)
    }
}

/// Combined data.
#[derive(Debug)]
#[non_exhaustive]
pub enum Value {
    /// No data.
    None,
    /// Element *i* of the concatenation is at *i* × count.
    Concatenated(Vec<u8>),
    /// Index and bytes of each member that had any, in order.
    Packed(Vec<(u64, Vec<u8>)>),
    /// A number for each place where a member has one.
    Numbers(Vec<NumberAt>),
    /// The content that all have.
    Equal(Vec<u8>),
    /// Members by content.
    Classes(Vec<Class>),
    /// Lines with the leaves that have them; the path of an entry is its member's.
    Lines(Box<Merged>),
    /// A number of members.
    Count(u64),
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("size", &self.size())
            .field("hosts", &self.client.fold(&self.members))
            .field("opened", &self.opened)
            .finish_non_exhaustive()
    }
}

impl Group {
    pub(super) fn new(
        client: &Client,
        stream: Stream,
        members: RangeSet,
        flags: u32,
        layout: MemberLayout,
        opened: Outcome,
    ) -> Self {
        let (turn, bodies) = Default::default();
        Self { client: client.clone(), stream, turn, bodies, members, flags, layout, opened }
    }

    /// Number of members (`gsize`).
    #[must_use]
    pub fn size(&self) -> u64 {
        self.layout.size()
    }

    /// What opening came to; with `O_BESTEFFORT` it names the files that are not members.
    #[must_use]
    pub fn opened(&self) -> &Outcome {
        &self.opened
    }

    /// Names of all members as `HOST:PATH`, by index (`gfiles`), byte for byte as they are on the
    /// hosts. They are collected from the servers: nothing here holds them.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As any operation.
    pub async fn files(&self) -> Result<Vec<OsString>, GroupError> {
        let name = |(leaf, path): (u32, Vec<u8>)| {
            let mut name = self.client.host(leaf).unwrap_or_default().into_bytes();
            name.push(b':');
            name.extend_from_slice(&path);
            OsString::from_vec(name)
        };
        Ok(self.paths().await?.into_iter().map(name).collect())
    }

    /// Leaf and path of every member, by index.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As any operation.
    pub async fn paths(&self) -> Result<Vec<(u32, Vec<u8>)>, GroupError> {
        let items = self.collect(&Request::Names).await?.into_iter();
        let mut named: Vec<_> = items
            .filter_map(|(leaf, local, path)| Some((self.layout.index(leaf, local)?, leaf, path)))
            .collect();
        named.sort_unstable_by_key(|(index, _, _)| *index);
        Ok(named.into_iter().map(|(_, leaf, path)| (leaf, path)).collect())
    }

    /// Index of the member called `HOST:PATH` (`gindex`): the first, if it is there twice. Only
    /// the server of that host looks.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// [`GroupError::UnknownMember`].
    pub async fn index(&self, name: impl AsRef<OsStr>) -> Result<u64, GroupError> {
        let name = name.as_ref();
        let unknown = || GroupError::UnknownMember(name.to_string_lossy().into_owned());
        let colon = name.as_bytes().iter().position(|byte| *byte == b':').ok_or_else(unknown)?;
        let (host, path) = (&name.as_bytes()[..colon], &name.as_bytes()[colon + 1..]);
        let leaf = std::str::from_utf8(host).ok().and_then(|host| self.client.leaf(host));
        let leaf = leaf.filter(|&leaf| self.members.contains(leaf)).ok_or_else(unknown)?;
        let found = self.collect(&Request::Find { leaf, path: path.to_vec() }).await?;
        found
            .first()
            .and_then(|(leaf, local, _)| self.layout.index(*leaf, *local))
            .ok_or_else(unknown)
    }

    /// Each member's status of the last operation, by index: ≥ 0 the result, or −errno
    /// (`gstatus`). A host that does not answer now counts as −EHOSTDOWN or −ETIMEDOUT.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// [`GroupError::Protocol`].
    pub async fn statuses(&self) -> Result<Vec<i64>, GroupError> {
        let (mut partial, mut wave) = self.ask(&Request::Statuses).await?;
        let is_packed = |data: &Data| matches!(data, Data::Packed(_));
        self.client.fail_wrong(&mut partial, &mut wave, &RangeSet::new(), is_packed);
        let mut statuses = vec![Errno::HOSTDOWN.status(); self.size() as usize];
        for (errno, leaves) in wave.coverage.failed.iter().chain(&wave.coverage.silent) {
            for index in leaves
                .iter()
                .flat_map(|leaf| (0..).map_while(move |local| self.layout.index(leaf, local)))
            {
                statuses[index as usize] = errno.status();
            }
        }
        for (leaf, local, bytes) in packed(partial.data).items {
            let status = bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
            if let (Some(index), Some(status)) = (self.layout.index(leaf, local), status) {
                statuses[index as usize] = status;
            }
        }
        Ok(statuses)
    }

    /// Strided index ranges `(start, stride, count)` of a set of members.
    #[must_use]
    pub fn indices(&self, members: &MemberSet) -> Vec<(u64, u64, u64)> {
        self.layout.strided(members)
    }

    /// `read(2)` of up to `count` bytes at each member's own offset; status: sum of bytes.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// [`GroupError::Members`] when a member fails (unless `O_PARTIAL`),
    /// [`GroupError::TooLarge`] when the combined data would exceed the bound. A member that fails
    /// stays at its offset; all do when the answer is too large.
    pub async fn read(&self, count: u64, data: DataAggregation) -> Result<Reading, GroupError> {
        self.operate(Operation::Read { count, data }, b"").await
    }

    /// `pread(2)`: offsets do not move.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As [`Group::read`].
    pub async fn pread(
        &self,
        count: u64,
        offset: u64,
        data: DataAggregation,
    ) -> Result<Reading, GroupError> {
        self.operate(Operation::Pread { count, offset, data }, b"").await
    }

    /// `write(2)` of the same bytes to each member; status: sum of bytes. A member may write a part
    /// of them, as `write(2)` may: [`Group::statuses`] tells which. [`Operation::WriteAll`] does
    /// not.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// [`GroupError::Members`] when a member fails (unless `O_PARTIAL`); the others have written.
    pub async fn write(&self, bytes: &[u8]) -> Result<Reading, GroupError> {
        self.operate(Operation::Write, bytes).await
    }

    /// `pwrite(2)`; as [`Group::write`].
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As [`Group::write`].
    pub async fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<Reading, GroupError> {
        self.operate(Operation::Pwrite { offset }, bytes).await
    }

    /// `lseek(2)`; status: the common offset, or −1 when the members' differ.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As [`Group::write`].
    pub async fn lseek(&self, offset: i64, whence: Whence) -> Result<i64, GroupError> {
        Ok(self.operate(Operation::Lseek { offset, whence }, b"").await?.status)
    }

    /// `fstat(2)`: index and attributes of each member.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As [`Group::write`].
    pub async fn fstat(&self) -> Result<Vec<(u64, Stat)>, GroupError> {
        let data = DataAggregation::Packed { bytes_max: self.client.limits().bytes_max };
        let reading = self.operate(Operation::Fstat { data }, b"").await?;
        let Value::Packed(items) = reading.value else { return Ok(Vec::new()) };
        let stat = |(index, bytes): (u64, Vec<u8>)| Some((index, Stat::from_bytes(&bytes)?));
        items.into_iter().map(stat).collect::<Option<_>>().ok_or(GroupError::Protocol)
    }

    /// `ftruncate(2)`.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As [`Group::write`].
    pub async fn ftruncate(&self, length: u64) -> Result<Reading, GroupError> {
        self.operate(Operation::Ftruncate { length }, b"").await
    }

    /// `fsync(2)`.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As [`Group::write`].
    pub async fn fsync(&self) -> Result<Reading, GroupError> {
        self.operate(Operation::Fsync, b"").await
    }

    /// `fchmod(2)`.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As [`Group::write`].
    pub async fn fchmod(&self, mode: u32) -> Result<Reading, GroupError> {
        self.operate(Operation::Fchmod { mode }, b"").await
    }

    /// `fchown(2)`; `None` leaves one as it is.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// As [`Group::write`].
    pub async fn fchown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<Reading, GroupError> {
        let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
        self.operate(Operation::Fchown { uid, gid }, b"").await
    }

    /// Closes every member; status 0 when all went well.
    ///
    /// **Dropped:** the group is closed all the same; how that went is not told.
    ///
    /// # Errors
    /// As [`Group::write`].
    pub async fn close(self) -> Result<Reading, GroupError> {
        let (mut partial, wave) = self.ask(&Request::Close { undo: false }).await?;
        let outcome = outcome(&mut partial, &wave, &self.members);
        if outcome.is_ok() || self.flags & O_PARTIAL != 0 {
            let contributors = self.members.difference(&outcome.missing_hosts());
            return Ok(Reading {
                status: 0,
                value: Value::None,
                outcome,
                contributors,
                labels: Vec::new(),
                layout: self.layout,
            });
        }
        Err(GroupError::Members(Box::new(outcome)))
    }

    /// Closes every member and removes the files that opening the group has made.
    ///
    /// **Dropped:** the group is closed; of the files that opening it has made, some may be
    /// removed.
    ///
    /// # Errors
    /// As [`Group::close`], for files that could not be removed.
    pub async fn abandon(self) -> Result<(), GroupError> {
        let observed = observer::observe(|| self.begun(Begun::new("group.abandon", Layer::Group)));
        let undone = self.client.insist(&self.stream, &Request::Close { undo: true }).await;
        let undone = undone.map(|(mut partial, wave)| outcome(&mut partial, &wave, &self.members));
        observed.end(|| observed::ending_of(&undone, observed::errno));
        let outcome = undone?;
        if outcome.is_ok() { Ok(()) } else { Err(GroupError::Members(Box::new(outcome))) }
    }

    /// Any operation on every member.
    ///
    /// **Dropped:** see [`Group`](Group#dropping-a-future).
    ///
    /// # Errors
    /// [`GroupError`].
    pub async fn operate(&self, operation: Operation, data: &[u8]) -> Result<Reading, GroupError> {
        let observed =
            observer::observe(|| self.begun(observed::begun(&operation, Layer::Group, data)));
        let result = self.do_operation(&operation, data).await;
        observed.end(|| observed::ending(&operation, &result));
        result
    }

    async fn do_operation(
        &self,
        operation: &Operation,
        data: &[u8],
    ) -> Result<Reading, GroupError> {
        check_count(operation)?;
        self.check_len(operation)?;
        let request = Request::Operate(operation.clone());
        let turn = self.turn().await;
        // Servers keep the bodies of one answer. Whoever wants them has them before the next
        // operation that would replace them is sent; what keeps none need not wait for that.
        let bodies = if operation.keeps_bodies() { Some(self.bodies.lock().await) } else { None };
        let asked = self.client.send(&self.stream, &request, data).await?;
        drop(turn);
        let (partial, wave) = asked.answer().await?;
        let of = wave.wave;
        let reading = self.conclude(operation, partial, wave).await;
        drop(bodies);
        let is_refused = reading.as_ref().is_err_and(GroupError::is_refusal);
        if is_refused && matches!(operation, Operation::Read { .. }) {
            // Who cannot be told is missed by the next operation.
            self.client.insist(&self.stream, &Request::Unread { of }).await?;
        }
        reading
    }

    /// Waits for its turn, from the first poll on, whatever else the task has done already.
    async fn turn(&self) -> MutexGuard<'_, ()> {
        tokio::task::unconstrained(self.turn.lock()).await
    }

    /// A question about the group in its turn, and its answer.
    async fn ask(&self, request: &Request) -> Result<(Partial, WaveResult), GroupError> {
        let observed =
            observer::observe(|| self.begun(Begun::new(observed::kind_of(request), Layer::Group)));
        let answer = self.ask_in_turn(request).await;
        observed.end(|| {
            observed::ending_of(&answer, |(partial, wave)| {
                let hosts = wave.coverage.failed.iter().chain(&wave.coverage.silent);
                let hosts = hosts.filter(|(_, leaves)| !leaves.is_disjoint(&self.members));
                let members = partial.errors.iter().map(|error| error.errno);
                observed::common(members.chain(hosts.map(|(errno, _)| *errno)))
            })
        });
        answer
    }

    async fn ask_in_turn(&self, request: &Request) -> Result<(Partial, WaveResult), GroupError> {
        let turn = self.turn().await;
        let asked = self.client.send(&self.stream, request, b"").await?;
        drop(turn);
        asked.answer().await
    }

    /// The same of all members of this group.
    fn begun<'a>(&self, begun: Begun<'a>) -> Begun<'a> {
        Begun { stream: self.stream.id(), members: self.size(), ..begun }
    }

    pub(super) async fn conclude(
        &self,
        operation: &Operation,
        mut partial: Partial,
        mut wave: WaveResult,
    ) -> Result<Reading, GroupError> {
        let lenient = self.flags & O_PARTIAL != 0;
        let (aggregation, how) = defaults(operation);
        self.client.fail_wrong(&mut partial, &mut wave, &self.members, |data| is_of(data, how));
        // Of sums nobody knows whose places were too many.
        let is_sum = matches!(how, DataAggregation::Numbers { .. });
        if too_large(&partial, &wave, (!is_sum).then_some(&self.members)) {
            if is_sum {
                return Err(GroupError::TooManyNumbers { numbers_max: NUMBERS_MAX });
            }
            return Err(GroupError::TooLarge {
                bytes_max: bound(how).unwrap_or(self.client.limits().bytes_max),
            });
        }
        let mut outcome = outcome(&mut partial, &wave, &self.members);
        if !outcome.is_ok() && !lenient {
            let too_many = outcome.errnos().all(|errno| errno == Errno::MSGSIZE);
            return Err(match how {
                DataAggregation::Lines { .. } if too_many => {
                    GroupError::TooManyLines { bytes_max: ANSWER_BYTES_MAX as u64 }
                }
                _ => GroupError::Members(Box::new(outcome)),
            });
        }
        let contributors = std::mem::take(&mut partial.contributors);
        let labels = match &partial.data {
            Data::Numbers(numbers) => numbers.labels(),
            _ => Vec::new(),
        };
        let value = self.value(operation, how, wave.wave, partial.data, &mut outcome).await?;
        // Who was refused has counted itself as one that succeeded.
        let left = self.size().saturating_sub(outcome.failed_count());
        outcome.status.count = outcome.status.count.min(left);
        if !outcome.is_ok() && !lenient {
            return Err(GroupError::Members(Box::new(outcome)));
        }
        // Nobody's offset differs from anybody's where there is nobody.
        let status = if self.size() == 0 { 0 } else { outcome.status.value(aggregation) };
        let layout = self.layout.clone();
        Ok(Reading { status, value, outcome, contributors, labels, layout })
    }

    /// The data as the caller sees it; what cannot be fetched any more becomes part of `outcome`.
    async fn value(
        &self,
        operation: &Operation,
        how: &DataAggregation,
        of: u64,
        data: Data,
        outcome: &mut Outcome,
    ) -> Result<Value, GroupError> {
        Ok(match how {
            DataAggregation::Zero => Value::None,
            DataAggregation::Count => Value::Count(outcome.status.count),
            DataAggregation::Concatenate { bytes_max } => {
                let count = match operation {
                    Operation::Read { count, .. } | Operation::Pread { count, .. } => *count,
                    _ => return Err(GroupError::Protocol),
                };
                Value::Concatenated(self.concatenate(packed(data), count, *bytes_max)?)
            }
            DataAggregation::Packed { .. } => {
                let items = packed(data).items.into_iter();
                let mut items: Vec<_> = items
                    .filter_map(|(leaf, local, bytes)| {
                        Some((self.layout.index(leaf, local)?, bytes))
                    })
                    .collect();
                items.sort_unstable_by_key(|(index, _)| *index);
                Value::Packed(items)
            }
            DataAggregation::Numbers { op, columns, .. } => Value::Numbers(match data {
                Data::Numbers(numbers) => {
                    numbers.values(*op, columns).map_err(GroupError::Overflow)?
                }
                _ => Vec::new(),
            }),
            DataAggregation::Equal => {
                let classes = classes(data);
                if classes.len() > 1 {
                    let outcome = Box::new(outcome.clone());
                    return Err(GroupError::Differ { classes: classes.len(), outcome });
                }
                let body = match self.fetch_bodies(of, classes, outcome).await?.pop() {
                    Some(class) => class.body,
                    None => None,
                };
                Value::Equal(body.unwrap_or_default())
            }
            DataAggregation::Contents { .. } => {
                Value::Classes(self.fetch_bodies(of, classes(data), outcome).await?)
            }
            DataAggregation::Checksum => {
                let class = |(digest, class): (_, crate::aggregate::ClassState)| Class {
                    members: class.members,
                    digest,
                    len: class.len,
                    body: None,
                };
                Value::Classes(classes(data).into_sorted().into_iter().map(class).collect())
            }
            DataAggregation::Lines { .. } => {
                let mut merged = Merged::new().with_text_limit(self.client.limits().bytes_max);
                let lines =
                    fetch::lines(&self.client, &self.stream, of, classes(data), &mut merged)
                        .await?;
                for (errno, leaves) in lines.lost {
                    outcome.add_lost(errno, &leaves);
                }
                self.client.refuse(&lines.garbled, outcome);
                Value::Lines(Box::new(merged))
            }
        })
    }

    async fn fetch_bodies(
        &self,
        of: u64,
        classes: Classes,
        outcome: &mut Outcome,
    ) -> Result<Vec<Class>, GroupError> {
        let fetched = fetch::bodies(&self.client, &self.stream, of, classes, None).await?;
        self.client.refuse(&fetched.garbled, outcome);
        outcome.add_failed(Errno::PROTO, &fetched.refused);
        outcome.add_failed(Errno::MSGSIZE, &fetched.too_long);
        let classes = fetched.classes;
        for class in classes.iter().filter(|class| class.body.is_none()) {
            outcome.add_silent(Errno::HOSTDOWN, &class.members.leaves());
        }
        Ok(classes)
    }

    fn concatenate(
        &self,
        packed: Packed,
        count: u64,
        bytes_max: u64,
    ) -> Result<Vec<u8>, GroupError> {
        let mut all = vec![0; self.concatenation_len(count, bytes_max)?];
        for (leaf, local, bytes) in packed.items {
            let Some(index) = self.layout.index(leaf, local) else { continue };
            let at = (index * count) as usize;
            let len = bytes.len().min(count as usize);
            all[at..at + len].copy_from_slice(&bytes[..len]);
        }
        Ok(all)
    }

    /// Whether there is room for what the operation gives, as far as that is known before.
    pub(super) fn check_len(&self, operation: &Operation) -> Result<(), GroupError> {
        match operation {
            Operation::Read { count, data: DataAggregation::Concatenate { bytes_max } }
            | Operation::Pread {
                count, data: DataAggregation::Concatenate { bytes_max }, ..
            } => self.concatenation_len(*count, *bytes_max).map(drop),
            _ => Ok(()),
        }
    }

    /// How long a concatenation becomes, if it may and can.
    fn concatenation_len(&self, count: u64, bytes_max: u64) -> Result<usize, GroupError> {
        let bytes = self.size().saturating_mul(count);
        if bytes > bytes_max {
            return Err(GroupError::TooLarge { bytes_max });
        }
        // Zeros that nobody looks at take no memory, but the system must be willing to give it.
        let len = usize::try_from(bytes).map_err(|_| GroupError::OutOfMemory { bytes })?;
        Vec::<u8>::new().try_reserve_exact(len).map_err(|_| GroupError::OutOfMemory { bytes })?;
        Ok(len)
    }

    async fn collect(&self, request: &Request) -> Result<Vec<(u32, u32, Vec<u8>)>, GroupError> {
        let (mut partial, mut wave) = self.ask(request).await?;
        let is_packed = |data: &Data| matches!(data, Data::Packed(_));
        self.client.fail_wrong(&mut partial, &mut wave, &RangeSet::new(), is_packed);
        let outcome = outcome(&mut partial, &wave, &self.members);
        if outcome.is_ok() {
            Ok(packed(partial.data).items)
        } else {
            Err(GroupError::Members(Box::new(outcome)))
        }
    }

    /// The hosts that have members.
    #[must_use]
    pub fn hosts(&self) -> &RangeSet {
        &self.members
    }
}

/// Whether these are data of an aggregation.
pub(super) fn is_of(data: &Data, how: &DataAggregation) -> bool {
    use DataAggregation::{
        Checksum, Concatenate, Contents, Count, Equal, Lines, Numbers, Packed, Zero,
    };
    match how {
        Zero | Count => false,
        Concatenate { .. } | Packed { .. } => matches!(data, Data::Packed(_)),
        Numbers { .. } => matches!(data, Data::Numbers(_)),
        Equal | Contents { .. } | Lines { .. } | Checksum => matches!(data, Data::Classes(_)),
    }
}

/// Default aggregations (paper, Table 2), and the data aggregation of the call.
pub(super) fn defaults(operation: &Operation) -> (StatusAggregation, &DataAggregation) {
    match operation {
        Operation::Read { data, .. } | Operation::Pread { data, .. } => {
            (StatusAggregation::Sum, data)
        }
        Operation::Write
        | Operation::Pwrite { .. }
        | Operation::WriteAll
        | Operation::PwriteAll { .. } => (StatusAggregation::Sum, &DataAggregation::Zero),
        Operation::Lseek { .. } => (StatusAggregation::Equal, &DataAggregation::Zero),
        Operation::Fstat { data } => (StatusAggregation::Zero, data),
        _ => (StatusAggregation::Zero, &DataAggregation::Zero),
    }
}

fn bound(how: &DataAggregation) -> Option<u64> {
    match how {
        DataAggregation::Concatenate { bytes_max } | DataAggregation::Packed { bytes_max } => {
            Some(*bytes_max)
        }
        _ => None,
    }
}

/// What the hosts in `asked` came to.
pub(super) fn outcome(partial: &mut Partial, wave: &WaveResult, asked: &RangeSet) -> Outcome {
    let mut outcome =
        Outcome { status: partial.status, errors: errors_of(partial), ..Outcome::default() };
    outcome.add_coverage_of(&wave.coverage, asked);
    outcome
}

pub(super) fn check_count(operation: &Operation) -> Result<(), GroupError> {
    match operation {
        Operation::Read { count, .. } | Operation::Pread { count, .. }
            if *count > READ_BYTES_MAX =>
        {
            Err(GroupError::TooLarge { bytes_max: READ_BYTES_MAX })
        }
        _ => Ok(()),
    }
}

fn packed(data: Data) -> Packed {
    match data {
        Data::Packed(packed) => packed,
        _ => Packed::default(),
    }
}

fn classes(data: Data) -> Classes {
    match data {
        Data::Classes(classes) => classes,
        _ => Classes::default(),
    }
}

/// Names of aggregations on the command line and in other languages.
impl DataAggregation {
    /// The aggregation called `name`: `concatenate packed sum average min max equal zero count
    /// contents lines checksum columns`.
    #[must_use]
    pub fn by_name(name: &str, columns: &[u32], bytes_max: u64, eager: u32) -> Option<Self> {
        let numbers =
            |op| Self::Numbers { op, columns: columns.to_vec(), lines: None, labels: false };
        Some(match name {
            "concatenate" | "concat" => Self::Concatenate { bytes_max },
            "packed" => Self::Packed { bytes_max },
            "sum" | "columns" => numbers(NumberOp::Sum),
            "average" | "avg" | "mean" => numbers(NumberOp::Average),
            "min" => numbers(NumberOp::Min),
            "max" => numbers(NumberOp::Max),
            "equal" => Self::Equal,
            "zero" => Self::Zero,
            "count" => Self::Count,
            "contents" | "classes" | "equivalence" => Self::Contents { eager },
            "lines" => Self::Lines { eager, digests: false },
            "checksum" => Self::Checksum,
            _ => return None,
        })
    }
}
