//! Which file a descriptor of a watched process is, and where it is in there.
//!
//! The kernel's events have numbers of descriptors and no names. A name is asked for (`/proc`)
//! once an open file is first seen, and is believed once all that happened until then is known, and
//! the descriptor was not closed meanwhile.
use std::collections::HashMap;

/// An open file, by the number that it has here.
pub type OpenId = u64;

/// A descriptor of a process.
pub type DescriptorOf = (i32, i32);

#[derive(Debug, Default)]
enum OpenName {
    #[default]
    Unasked,
    /// The name, and the descriptor that was asked for it, and when.
    Asked(u32, DescriptorOf, u64),
    Known(u32),
    /// It will not be known.
    Never,
}

/// An open file, which several descriptors may be, of several processes.
#[derive(Debug, Default)]
struct KernelFile {
    name: OpenName,
    holders: Vec<DescriptorOf>,
    /// Rows that wait for its name.
    waiting: u64,
    place: Option<u64>,
    /// Calls under way that move the place.
    moving: u32,
    /// More than one was, so that nobody knows in which order.
    is_contested: bool,
}

/// The open files of all watched processes.
#[derive(Debug, Default)]
pub struct OpenFiles {
    files: HashMap<OpenId, KernelFile>,
    tables: HashMap<i32, HashMap<i32, OpenId>>,
    next: OpenId,
    /// Those whose names are to be asked for.
    unasked: Vec<OpenId>,
}

impl OpenFiles {
    /// The open file of a descriptor, which is a new one here if it was not seen before.
    pub fn of(&mut self, pid: i32, fd: i32) -> OpenId {
        match self.known(pid, fd) {
            Some(id) => id,
            None => self.open(pid, fd, None),
        }
    }

    pub fn known(&self, pid: i32, fd: i32) -> Option<OpenId> {
        self.tables.get(&pid)?.get(&fd).copied()
    }

    /// The descriptor is a new open file.
    pub fn open(&mut self, pid: i32, fd: i32, place: Option<u64>) -> OpenId {
        self.next += 1;
        let id = self.next;
        self.files.insert(id, KernelFile { place, ..KernelFile::default() });
        self.unasked.push(id);
        // At time 0, because the close of the descriptor's earlier file was not seen: a name that
        // was asked for that file is in doubt.
        self.hold(pid, fd, id, 0);
        id
    }

    /// The descriptor is this open file from here on.
    pub fn hold(&mut self, pid: i32, fd: i32, id: OpenId, time: u64) {
        self.close(pid, fd, time);
        self.tables.entry(pid).or_default().insert(fd, id);
        if let Some(file) = self.files.get_mut(&id) {
            file.holders.push((pid, fd));
        }
    }

    /// The descriptor is closed at that time, if it is one.
    pub fn close(&mut self, pid: i32, fd: i32, time: u64) {
        let id = self.tables.get_mut(&pid).and_then(|table| table.remove(&fd));
        if let Some(id) = id {
            self.let_go(id, (pid, fd), time);
        }
    }

    /// All descriptors from `first` to `last` are.
    pub fn close_range(&mut self, pid: i32, first: u64, last: u64, time: u64) {
        let table = self.tables.get(&pid).into_iter().flatten();
        let within = |fd: &i32| (first..=last).contains(&(*fd as u64));
        let closed: Vec<i32> = table.map(|(fd, _)| *fd).filter(within).collect();
        closed.into_iter().for_each(|fd| self.close(pid, fd, time));
    }

    /// A process has all that another has.
    pub fn fork(&mut self, parent: i32, child: i32) {
        let table = self.tables.get(&parent).cloned().unwrap_or_default();
        for (&fd, id) in &table {
            if let Some(file) = self.files.get_mut(id) {
                file.holders.push((child, fd));
            }
        }
        self.tables.insert(child, table);
    }

    /// The process has ended, or which of its descriptors stay is not known.
    pub fn end(&mut self, pid: i32, time: u64) {
        for (fd, id) in self.tables.remove(&pid).unwrap_or_default() {
            self.let_go(id, (pid, fd), time);
        }
    }

    /// Nothing that is not certain by now will be.
    pub fn forget(&mut self) {
        self.tables.clear();
        self.unasked.clear();
        self.files.retain(|_, file| {
            file.holders.clear();
            if !matches!(file.name, OpenName::Known(_)) {
                file.name = OpenName::Never;
            }
            file.waiting > 0
        });
    }

    fn let_go(&mut self, id: OpenId, holder: DescriptorOf, time: u64) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.holders.retain(|other| *other != holder);
        if let OpenName::Asked(_, asked, at) = file.name
            && asked == holder
            && time <= at
        {
            // It may have been another's name already.
            file.name = OpenName::Unasked;
            self.unasked.push(id);
        }
        if file.holders.is_empty() {
            if matches!(file.name, OpenName::Unasked) {
                file.name = OpenName::Never;
            }
            if file.waiting == 0 {
                self.files.remove(&id);
            }
        }
    }

    /// Asks for the names that are not known yet. `read` gives that of a descriptor.
    pub fn ask(&mut self, now: u64, mut read: impl FnMut(DescriptorOf) -> Option<u32>) {
        for id in std::mem::take(&mut self.unasked) {
            let Some(file) = self.files.get_mut(&id) else { continue };
            if !matches!(file.name, OpenName::Unasked) {
                continue;
            }
            // All holders have the same open file, and some of their processes may have ended.
            let found = file.holders.iter().find_map(|holder| Some((read(*holder)?, *holder)));
            file.name = match found {
                Some((name, holder)) => OpenName::Asked(name, holder, now),
                None => OpenName::Never,
            };
        }
    }

    /// A row waits for the name.
    pub fn wait(&mut self, id: OpenId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.waiting += 1;
        }
    }

    /// The name that a row has waited for, all being known that happened until `until`.
    pub fn name(&mut self, id: OpenId, until: u64) -> Option<u32> {
        let file = self.files.get_mut(&id)?;
        file.waiting = file.waiting.saturating_sub(1);
        if let OpenName::Asked(name, _, at) = file.name
            && at <= until
        {
            file.name = OpenName::Known(name);
        }
        let name = match file.name {
            OpenName::Known(name) => Some(name),
            _ => None,
        };
        if file.waiting == 0 && file.holders.is_empty() {
            self.files.remove(&id);
        }
        name
    }

    /// A call begins that goes on where the descriptor is.
    pub fn begin_turn(&mut self, id: OpenId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.moving += 1;
            file.is_contested |= file.moving > 1;
        }
    }

    /// It has moved so many bytes: where it began, if that is known.
    pub fn end_turn(&mut self, id: OpenId, bytes: u64) -> Option<u64> {
        let file = self.files.get_mut(&id)?;
        file.moving = file.moving.saturating_sub(1);
        if file.is_contested {
            file.place = None;
        }
        file.is_contested &= file.moving > 0;
        let place = file.place?;
        file.place = place.checked_add(bytes);
        Some(place)
    }

    /// The place is this from here on.
    pub fn set_place(&mut self, id: OpenId, place: Option<u64>) {
        if let Some(file) = self.files.get_mut(&id) {
            // While another call moves the place, the order of the two is unknown.
            file.place = place.filter(|_| file.moving == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OpenFiles;

    #[test]
    fn name_counts_if_the_descriptor_was_open_when_it_was_asked() {
        let mut files = OpenFiles::default();
        let (first, second) = (files.of(1, 3), files.of(1, 4));
        [first, second].into_iter().for_each(|id| files.wait(id));
        files.ask(100, |(_, fd)| Some(fd as u32 * 10));
        // Closed after it was asked, and before.
        files.close(1, 3, 101);
        files.close(1, 4, 99);
        assert_eq!((files.name(first, 100), files.name(second, 100)), (Some(30), None));
        assert!(files.files.is_empty(), "nobody has them and nobody waits");
    }

    #[test]
    fn another_descriptor_of_the_same_open_file_is_asked() {
        let mut files = OpenFiles::default();
        let id = files.open(1, 3, Some(0));
        files.wait(id);
        files.hold(1, 1, id, 5);
        files.close(1, 3, 6);
        files.fork(1, 2);
        assert_eq!(files.known(2, 1), Some(id));
        files.end(1, 7);
        files.ask(10, |holder| (holder == (2, 1)).then_some(7));
        assert_eq!(files.name(id, 10), Some(7));
    }

    #[test]
    fn offset_is_unknown_after_two_concurrent_calls() {
        let mut files = OpenFiles::default();
        let id = files.open(1, 3, Some(0));
        files.begin_turn(id);
        assert_eq!(files.end_turn(id, 10), Some(0));
        files.begin_turn(id);
        files.begin_turn(id);
        assert_eq!((files.end_turn(id, 10), files.end_turn(id, 10)), (None, None));
        files.set_place(id, Some(4));
        files.begin_turn(id);
        assert_eq!(files.end_turn(id, 1), Some(4));
    }

    #[test]
    fn forgotten_file_gets_no_name_later() {
        let mut files = OpenFiles::default();
        let (certain, asked) = (files.of(1, 3), files.of(1, 4));
        for id in [certain, certain, asked] {
            files.wait(id);
        }
        files.ask(1, |_| Some(9));
        assert_eq!(files.name(certain, 1), Some(9));
        files.forget();
        assert_eq!((files.name(certain, 2), files.name(asked, 2)), (Some(9), None));
        assert_ne!(files.of(1, 3), certain);
    }
}
