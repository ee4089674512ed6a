//! Fetching contents from hosts that have them, and writing them here.
use super::super::PIECE_BYTES;
use super::super::options::Progress;
use super::super::put::Pace;
use super::Got;
use super::local::Local;
use super::pieces::{self, CopyPiece, Lack, PIECES_MAX};
use super::plan::{CopiedContent, CopiedLink, Copy, CopyPlan};
use crate::target::ToolError;
use sheaf_core::{Errno, RangeSet, lock};
use sheaf_file::Staged;
use sheaf_group::Client;
use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Hosts that do not answer when they are asked for a content, one after the other, before it is given up.
const SILENT_MAX: usize = 8;

/// Places of a host that cannot be written, for a reason that others may share, before a content is given up for that
/// host; and hosts with such a place before it is for all.
const FULL_MAX: usize = 8;

/// Files that would be written in place with a content, which hosts compare with their own.
const IN_PLACE_MAX: usize = 8;

/// Something to write.
pub(super) type Write = Box<dyn FnOnce(&mut Local) + Send>;

/// Starts the thread that writes until the sender is dropped: the tree has to go on meanwhile.
pub(super) fn start_writing(local: &Arc<Mutex<Local>>) -> Result<Sender<Write>, ToolError> {
    let (send, writes) = channel::<Write>();
    let local = Arc::clone(local);
    let write_all = move || {
        let locked = || lock(&local);
        writes.iter().for_each(|write| write(&mut locked()));
    };
    let started = std::thread::Builder::new().name("sheaf-cp".to_owned()).spawn(write_all);
    started.map_err(|error| ToolError::Local {
        path: "a thread to write with".to_owned(),
        errno: error.into(),
    })?;
    Ok(send)
}

/// Fetching and writing.
pub(super) struct Fetch<'a> {
    pub client: &'a Client,
    pub writer: Sender<Write>,
    pub got: &'a mut Got,
    pub pace: Pace,
    pub progress: &'a mut (dyn FnMut(Progress) + Send),
    /// Files are written in place, and so must not be their own sources.
    pub in_place: bool,
    /// Hosts that have given something else than the content which they said.
    pub liars: RangeSet,
}

impl Fetch<'_> {
    pub(super) async fn all(mut self, mut plan: CopyPlan) -> Result<(), ToolError> {
        let (dirs, inline, links) = (
            std::mem::take(&mut plan.dirs),
            std::mem::take(&mut plan.inline),
            std::mem::take(&mut plan.links),
        );
        let named = links.iter().filter_map(|(_, link)| match link {
            CopiedLink::Hardlink(first) => Some(first.clone()),
            _ => None,
        });
        let named = named.collect();
        // Links are there before files: what is written through one goes where it leads in the end. Other names come last.
        let (links, first): (Vec<_>, Vec<_>) =
            links.into_iter().partition(|(_, link)| matches!(link, CopiedLink::Hardlink(_)));
        self.here(move |local| {
            local.named = named;
            local.make_dirs(&dirs);
            local.make_links(&first);
        })
        .await;
        let (small, mut large): (Vec<CopiedContent>, Vec<CopiedContent>) = plan
            .contents
            .into_iter()
            .filter(|content| !content.copies.is_empty())
            .partition(|content| content.size <= PIECE_BYTES);
        self.small(small).await?;
        // One without an end keeps no other one from its place.
        large.sort_by_key(|content| content.size);
        for content in large {
            self.large(content).await?;
        }
        if let Some(errno) = self.client.is_over() {
            // What came with the manifests is not written any more either.
            let unwritten =
                inline.iter().map(|(copy, _)| copy).chain(links.iter().map(|(copy, _)| copy));
            unwritten.for_each(|copy| self.got.outcome.add_silent(errno, &copy.leaves));
            return Ok(());
        }
        let client = self.client.clone();
        let write = move |local: &mut Local| {
            let mut unwritten = None;
            // Hard links come after files, which they name. Directories get their attributes
            // when all that is in them is there.
            for (copy, content) in inline {
                match client.is_over() {
                    Some(errno) => {
                        let (_, leaves) = unwritten.get_or_insert((errno, RangeSet::new()));
                        leaves.union_with(&copy.leaves);
                    }
                    None => local.write(&content, blake3::hash(&content).as_bytes(), &[copy]),
                }
            }
            match &mut unwritten {
                Some((_, leaves)) => {
                    links.iter().for_each(|(copy, _)| leaves.union_with(&copy.leaves));
                }
                None => local.make_links(&links),
            }
            local.close_dirs();
            unwritten
        };
        if let Some((errno, leaves)) = self.here(write).await {
            self.got.outcome.add_silent(errno, &leaves);
        }
        Ok(())
    }

    /// Writes, on the thread that may block.
    async fn here<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Local) -> T + Send + 'static,
    ) -> T {
        let (done, written) = oneshot::channel();
        let write = move |local: &mut Local| drop(done.send(act(local)));
        // If the writer is gone, nobody will say that this was done.
        let _ = self.writer.send(Box::new(write));
        written.await.expect("the writer works until this is dropped, unless it has panicked")
    }

    /// Contents that fit in one wave, many at a time.
    async fn small(&mut self, contents: Vec<CopiedContent>) -> Result<(), ToolError> {
        // They are taken from the end. None is longer than a piece, so one always fits.
        let mut waiting: Vec<Wanted> = contents.into_iter().rev().map(Wanted::new).collect();
        while !waiting.is_empty() {
            let (mut asked, mut pieces) = (Vec::new(), Vec::new());
            let mut bytes = 0;
            while asked.len() < PIECES_MAX
                && let Some(wanted) =
                    waiting.pop_if(|next| bytes + next.content.size <= PIECE_BYTES)
            {
                bytes += wanted.content.size;
                if let Some(holder) = wanted.holder(&self.liars) {
                    pieces.push(piece(&wanted.content, holder, 0));
                    asked.push(wanted);
                }
            }
            if self.in_place {
                let find = move |local: &mut Local| {
                    for (wanted, piece) in asked.iter().zip(&mut pieces) {
                        piece.apart = local.in_place(&wanted.content, IN_PLACE_MAX);
                    }
                    (asked, pieces)
                };
                (asked, pieces) = self.here(find).await;
            }
            let answers = self.ask(&pieces, bytes).await?;
            let mut whole = Vec::new();
            for ((mut wanted, piece), answer) in asked.into_iter().zip(pieces).zip(answers) {
                match answer.and_then(|body| verified(body, &wanted.content)) {
                    Ok(body) => {
                        self.got.fetched.files += 1;
                        whole.push((wanted.content, body));
                    }
                    Err(lack) if self.has_more(&mut wanted, piece.leaf, lack) => {
                        tracing::debug!(
                            ?lack,
                            "a copy of a content was not had from {}",
                            piece.leaf
                        );
                        waiting.push(wanted);
                    }
                    Err(lack) => self.lack(wanted.content, lack).await,
                }
            }
            let client = self.client.clone();
            let write = move |local: &mut Local| {
                let mut whole = whole.into_iter();
                while client.is_over().is_none()
                    && let Some((content, body)) = whole.next()
                {
                    local.write(&body, &content.digest, &content.copies);
                }
                whole.map(|(content, _)| content).collect::<Vec<_>>()
            };
            for unwritten in self.here(write).await {
                let errno = self.client.is_over().unwrap_or(Errno::CANCELED);
                self.lack(unwritten, Lack::Silent(errno)).await;
            }
        }
        Ok(())
    }

    /// A host has not given a content: whether another one can be asked for it.
    fn has_more(&mut self, wanted: &mut Wanted, leaf: u32, lack: Lack) -> bool {
        wanted.tried.insert(leaf);
        match lack {
            Lack::Silent(_) => wanted.silent += 1,
            // Its file may have changed; or it claims what it does not have.
            Lack::Failed(Errno::BADMSG | Errno::PROTO) => self.liars.insert(leaf),
            Lack::Failed(_) => {}
        }
        wanted.silent < SILENT_MAX
            && self.client.is_over().is_none()
            && wanted.holder(&self.liars).is_some()
    }

    /// A content that takes several waves: to one place, and from there to the others.
    async fn large(&mut self, content: CopiedContent) -> Result<(), ToolError> {
        let each = content.copies.iter().enumerate();
        let places: Vec<(usize, u32)> =
            each.flat_map(|(at, copy)| copy.leaves.iter().map(move |leaf| (at, leaf))).collect();
        let mut wanted = Wanted::new(content);
        let (mut place, mut full) = (0, FullPlaces::default());
        let last = loop {
            let Some((at, leaf)) = places.get(place).copied() else { return Ok(()) };
            let copy = wanted.content.copies[at].clone();
            match self.bring(&mut wanted, leaf, &copy).await? {
                Ok(()) => {
                    self.got.fetched.files += 1;
                    let content = wanted.content;
                    self.here(move |local| local.replicate(&content, (leaf, &copy))).await;
                    return Ok(());
                }
                Err(CopyTrouble::Local(errno)) => {
                    self.here(move |local| local.fail(leaf, &copy, errno)).await;
                    place += 1;
                    if matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO) {
                        full.add(leaf);
                    }
                    if full.is_over() {
                        break errno;
                    }
                    // It may be for what this host wants there, as attributes.
                    while let Some((at, leaf)) = places.get(place).copied()
                        && full.is_over_for(leaf)
                    {
                        let copy = wanted.content.copies[at].clone();
                        self.here(move |local| local.fail(leaf, &copy, errno)).await;
                        place += 1;
                    }
                }
                Err(CopyTrouble::Mixed) => {}
                Err(CopyTrouble::Lack(holder, lack)) => {
                    if !self.has_more(&mut wanted, holder, lack) {
                        self.lack(wanted.content, lack).await;
                        return Ok(());
                    }
                }
            }
        };
        // Where so many places cannot be written, the others are not tried.
        self.here(move |local| {
            for (at, leaf) in &places[place..] {
                local.fail(*leaf, &wanted.content.copies[*at], last);
            }
        })
        .await;
        Ok(())
    }

    /// Fetches a content to one place.
    async fn bring(
        &mut self,
        wanted: &mut Wanted,
        leaf: u32,
        copy: &Copy,
    ) -> Result<Result<(), CopyTrouble>, ToolError> {
        if self.in_place {
            let same = self.sources(&wanted.content, leaf, copy).await?;
            // What one host says of its file is nothing about the others' places.
            wanted.tried.union_with(&same);
            if same.contains(leaf) || wanted.holder(&self.liars).is_none() {
                return Ok(Err(CopyTrouble::Local(Errno::SAMEFILE)));
            }
        }
        let copy_here = copy.clone();
        let staged = match self.here(move |local| local.begin(leaf, &copy_here)).await {
            Ok(staged) => staged,
            Err(errno) => return Ok(Err(CopyTrouble::Local(errno))),
        };
        let mut staged = Some(staged);
        let filled = self.fill(wanted, &mut staged).await;
        let staged = staged.ok_or(ToolError::Protocol)?;
        let (copy, digest) = (copy.clone(), wanted.content.digest);
        let from = match filled {
            Ok(Ok(from)) => from,
            Ok(Err(trouble)) => {
                self.here(move |local| local.give_up(leaf, &copy, &staged)).await;
                return Ok(Err(trouble));
            }
            Err(error) => {
                self.here(move |local| local.give_up(leaf, &copy, &staged)).await;
                return Err(error);
            }
        };
        Ok(match self.here(move |local| local.finish(leaf, &copy, staged, &digest)).await {
            Ok(()) => Ok(()),
            // The contents are not those of the manifest: another host may have them.
            Err(Errno::BADMSG) if from.len() > 1 => Err(CopyTrouble::Mixed),
            Err(Errno::BADMSG) => match from.first() {
                Some(holder) => Err(CopyTrouble::Lack(holder, Lack::Failed(Errno::BADMSG))),
                None => Err(CopyTrouble::Local(Errno::BADMSG)),
            },
            Err(errno) => Err(CopyTrouble::Local(errno)),
        })
    }

    /// Fetches a content into a file that is given back, and says from whom.
    async fn fill(
        &mut self,
        wanted: &mut Wanted,
        file: &mut Option<Staged>,
    ) -> Result<Result<RangeSet, CopyTrouble>, ToolError> {
        let size = wanted.content.size;
        let (mut at, mut from) = (0, RangeSet::new());
        while at < size {
            let Some(holder) = wanted.holder(&self.liars) else {
                return Ok(Err(CopyTrouble::Local(Errno::PROTO)));
            };
            let piece = piece(&wanted.content, holder, at);
            let (holder, len) = (piece.leaf, u64::from(piece.len));
            let answer =
                self.ask(&[piece], len).await?.pop().unwrap_or(Err(Lack::Failed(Errno::PROTO)));
            let body = match answer {
                Ok(body) if body.len() as u64 == len => body,
                Ok(_) => return Ok(Err(CopyTrouble::Lack(holder, Lack::Failed(Errno::BADMSG)))),
                // Whoever has the same content can go on where the other was lost.
                Err(lack @ Lack::Silent(_)) if self.has_more(wanted, holder, lack) => continue,
                Err(lack) => return Ok(Err(CopyTrouble::Lack(holder, lack))),
            };
            from.insert(holder);
            let Some(mut staged) = file.take() else { return Err(ToolError::Protocol) };
            let (written, back) = self.here(move |_| (staged.write_at(at, &body), staged)).await;
            *file = Some(back);
            if let Err(errno) = written {
                return Ok(Err(CopyTrouble::Local(errno)));
            }
            at += len;
        }
        Ok(Ok(from))
    }

    /// The hosts of which the file that would be written in place is the one that they would send.
    async fn sources(
        &mut self,
        content: &CopiedContent,
        leaf: u32,
        copy: &Copy,
    ) -> Result<RangeSet, ToolError> {
        let local = copy.local.clone();
        let there = self.here(move |all| all.in_place_at(leaf, &local)).await;
        let Some(there) = there else { return Ok(RangeSet::new()) };
        // Hosts compare it with their own files, and send nothing.
        let mut questions = Vec::new();
        let mut asked = RangeSet::new();
        for copy in &content.copies {
            for leaf in copy.leaves.difference(&asked).iter().take(PIECES_MAX - questions.len()) {
                let piece = piece(content, (leaf, &copy.remote), 0);
                questions.push(CopyPiece { len: 0, apart: vec![there.clone()], ..piece });
            }
            asked.union_with(&copy.leaves);
        }
        let answers = self.ask(&questions, 0).await?;
        let said = questions.iter().zip(answers);
        let same = |answer| matches!(answer, Err(Lack::Failed(Errno::SAMEFILE)));
        Ok(said.filter_map(|(asked, answer)| same(answer).then_some(asked.leaf)).collect())
    }

    /// One wave.
    async fn ask(
        &mut self,
        pieces: &[CopyPiece],
        bytes: u64,
    ) -> Result<Vec<Result<Vec<u8>, Lack>>, ToolError> {
        if let Some(errno) = self.client.is_over() {
            return Ok(pieces.iter().map(|_| Err(Lack::Silent(errno))).collect());
        }
        let answers = pieces::fetch(self.client, pieces).await?;
        self.got.fetched.bytes +=
            answers.iter().flatten().map(|body| body.len() as u64).sum::<u64>();
        (self.progress)(self.got.fetched);
        tokio::select! {
            _ = self.client.over() => {}
            () = self.pace.wait(bytes) => {}
        }
        Ok(answers)
    }

    /// Nobody gives this content.
    async fn lack(&mut self, content: CopiedContent, lack: Lack) {
        for copy in &content.copies {
            match lack {
                Lack::Silent(errno) => self.got.outcome.add_silent(errno, &copy.leaves),
                Lack::Failed(errno) => self.got.outcome.push_error(copy.error(errno)),
            }
        }
        self.here(move |local| local.lack(&content.copies)).await;
    }
}

/// A content, and which hosts have not given it.
struct Wanted {
    content: CopiedContent,
    tried: RangeSet,
    /// How many of them did not answer.
    silent: usize,
}

impl Wanted {
    fn new(content: CopiedContent) -> Self {
        Self { content, tried: RangeSet::new(), silent: 0 }
    }

    /// The host to ask next, with its path of the content: those that have given what is not the content they said come last.
    fn holder(&self, liars: &RangeSet) -> Option<(u32, &[u8])> {
        let find = |passed_over: &RangeSet| {
            self.content.copies.iter().find_map(|copy| {
                let left = copy.leaves.difference(passed_over);
                Some((left.first()?, &copy.remote[..]))
            })
        };
        let mut last = self.tried.clone();
        last.union_with(liars);
        find(&last).or_else(|| find(&self.tried))
    }
}

/// Places that cannot be written for such reasons, by host.
#[derive(Default)]
struct FullPlaces(HashMap<u32, usize>);

impl FullPlaces {
    fn add(&mut self, leaf: u32) {
        *self.0.entry(leaf).or_default() += 1;
    }

    fn is_over_for(&self, leaf: u32) -> bool {
        self.0.get(&leaf).is_some_and(|count| *count >= FULL_MAX)
    }

    fn is_over(&self) -> bool {
        self.0.len() >= FULL_MAX
    }
}

/// Why a content did not come to a place.
enum CopyTrouble {
    Local(Errno),
    /// What came from several hosts is not the content, and it is not known whose part is wrong.
    Mixed,
    /// This host has not given it.
    Lack(u32, Lack),
}

fn piece(content: &CopiedContent, (leaf, path): (u32, &[u8]), offset: u64) -> CopyPiece {
    let len = (content.size - offset).min(PIECE_BYTES) as u32;
    CopyPiece { leaf, path: path.to_vec(), offset, len, apart: Vec::new() }
}

fn verified(body: Vec<u8>, content: &CopiedContent) -> Result<Vec<u8>, Lack> {
    let is_same =
        body.len() as u64 == content.size && *blake3::hash(&body).as_bytes() == content.digest;
    if is_same { Ok(body) } else { Err(Lack::Failed(Errno::BADMSG)) }
}
