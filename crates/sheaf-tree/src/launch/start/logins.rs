//! The logins over ssh that one node makes at a time.
//!
//! A login has a place in the pool until the host's shell has answered. A host that drops packets
//! answers nothing for the whole connection timeout, and many such hosts would fill the pool. So a
//! login that has no answer after [`SLOW_AFTER`] leaves its place to another host, and goes on
//! among the slow logins, which have a larger bound of their own.
//!
//! An sshd refuses logins when too many are not authenticated (`MaxStartups`, by default from 10
//! on). Hosts behind one gateway share that bound, so logins through a gateway are fewer at a time.
use super::ssh::{Ssh, detach};
use sheaf_core::lock;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A login without an answer for this long leaves its place to another one.
const SLOW_AFTER: Duration = Duration::from_millis(500);
/// The same through a gateway, where each login is two.
const SLOW_AFTER_GATEWAY: Duration = Duration::from_secs(1);
/// Slow logins at a time, for each place of the pool, and at most.
const SLOW_PER_PLACE: usize = 16;
const SLOW_MAX: usize = 1_024;
/// Logins through one gateway at a time: an sshd begins to refuse at 10 (`MaxStartups 10:30:100`).
const GATEWAY_LOGINS_MAX: usize = 8;
/// How long ssh may take to print its configuration.
const CONFIGURATION_TIMEOUT: Duration = Duration::from_secs(2);

/// The pool of logins of one node.
pub(in crate::launch) struct Logins {
    places: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    bound: Mutex<Bound>,
}

/// How many places there are.
struct Bound {
    places: usize,
    /// Places that are in use and end with that use, because the bound was lowered.
    surplus: usize,
    /// Logins go through a gateway.
    is_gateway: bool,
}

/// The place of one login. It is free again when this is dropped.
pub(in crate::launch) struct LoginPlace {
    logins: Arc<Logins>,
    /// A place of the pool, until the login is slow.
    place: Option<OwnedSemaphorePermit>,
    slow: Option<OwnedSemaphorePermit>,
}

impl Logins {
    /// A pool as the configuration wants it.
    pub fn new(how: &Ssh) -> Arc<Self> {
        let places = (how.starts_max.max(1) as usize).min(Semaphore::MAX_PERMITS);
        let slow = places.saturating_mul(SLOW_PER_PLACE).min(SLOW_MAX);
        let bound = Bound { places, surplus: 0, is_gateway: false };
        Arc::new(Self {
            places: Arc::new(Semaphore::new(places)),
            slow: Arc::new(Semaphore::new(slow)),
            bound: Mutex::new(bound),
        })
    }

    /// A pool for logins to these hosts, of which there are fewer at a time if the way to the first
    /// one leads through a gateway.
    pub async fn to<'a>(how: &Ssh, mut hosts: impl ExactSizeIterator<Item = &'a str>) -> Arc<Self> {
        let logins = Self::new(how);
        if hosts.len() > GATEWAY_LOGINS_MAX
            && let Some(host) = hosts.next()
            && has_gateway(how, host).await
        {
            logins.spare_gateway();
        }
        logins
    }

    /// Waits for a place.
    pub async fn place(self: &Arc<Self>) -> LoginPlace {
        // The pool is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        LoginPlace { logins: Arc::clone(self), place, slow: None }
    }

    /// Lowers the number of places to what a gateway accepts.
    pub fn spare_gateway(&self) {
        let mut bound = lock(&self.bound);
        bound.is_gateway = true;
        let surplus = bound.places.saturating_sub(GATEWAY_LOGINS_MAX);
        bound.places -= surplus;
        bound.surplus += surplus - self.places.forget_permits(surplus);
    }

    fn slow_after(&self) -> Duration {
        if lock(&self.bound).is_gateway { SLOW_AFTER_GATEWAY } else { SLOW_AFTER }
    }

    /// Frees a place, unless there is one too many.
    fn free(&self, place: OwnedSemaphorePermit) {
        let mut bound = lock(&self.bound);
        if bound.surplus > 0 {
            bound.surplus -= 1;
            place.forget();
        }
    }
}

impl LoginPlace {
    /// Waits until a host has answered. If that takes long, another host has the place meanwhile.
    pub async fn until<T>(&mut self, answered: impl Future<Output = T>) -> T {
        let mut answered = pin!(answered);
        if self.place.is_none() {
            return answered.await;
        }
        if let Ok(answer) = timeout(self.logins.slow_after(), &mut answered).await {
            return answer;
        }
        tokio::select! {
            biased;
            answer = &mut answered => return answer,
            slow = Arc::clone(&self.logins.slow).acquire_owned() => self.slow = slow.ok(),
        }
        self.place.take().into_iter().for_each(|place| self.logins.free(place));
        answered.await
    }

    /// Lowers the number of logins that go through a gateway, which has refused one.
    pub fn spare_gateway(&self) {
        self.logins.spare_gateway();
    }
}

impl Drop for LoginPlace {
    fn drop(&mut self) {
        self.place.take().into_iter().for_each(|place| self.logins.free(place));
    }
}

/// Whether ssh reaches a host through another one, by its options or its configuration. Only the
/// client itself is run: a script of the user's may do anything with the option `-G`.
async fn has_gateway(how: &Ssh, host: &str) -> bool {
    let mut words = how.command.iter();
    let name = words.next().map_or("ssh", String::as_str);
    if Path::new(name).file_name().is_none_or(|name| name != "ssh") {
        return how.command.iter().any(|word| word == "-J");
    }
    let mut command = Command::new(name);
    command.args(words).args(["-G", "--", host]).stdin(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true);
    detach(&mut command);
    let printed = timeout(CONFIGURATION_TIMEOUT, command.output()).await;
    printed.is_ok_and(|printed| printed.is_ok_and(|output| names_gateway(&output.stdout)))
}

/// Whether the configuration of a host, as ssh prints it, names a gateway.
fn names_gateway(configuration: &[u8]) -> bool {
    String::from_utf8_lossy(configuration).lines().any(|line| {
        let (key, value) = line.split_once(' ').unwrap_or_default();
        ["proxyjump", "proxycommand"].contains(&key) && value != "none"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::ProgramContent;
    use std::future::pending;
    use tokio::time::Instant;

    fn logins(starts_max: u32) -> Arc<Logins> {
        let content = ProgramContent::of_this_program().unwrap();
        Logins::new(&Ssh { starts_max, ..Ssh::new(content) })
    }

    /// Begins a login to a host that never answers.
    fn dead(logins: &Arc<Logins>) {
        let logins = Arc::clone(logins);
        crate::task::spawn(async move {
            let mut place = logins.place().await;
            place.until(pending::<()>()).await;
        });
    }

    #[tokio::test(start_paused = true)]
    async fn login_pool_is_not_filled_by_dead_hosts() {
        let logins = logins(4);
        (0..40).for_each(|_| dead(&logins));
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let mut place = logins.place().await;
        place.until(async {}).await;
        assert!(begun.elapsed() <= SLOW_AFTER * 10, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_logins_have_a_bound_of_their_own() {
        let logins = logins(1);
        (0..SLOW_PER_PLACE + 1).for_each(|_| dead(&logins));
        tokio::task::yield_now().await;
        let last = timeout(SLOW_AFTER * 100, logins.place()).await;
        assert!(last.is_err(), "{SLOW_PER_PLACE} slow logins, and one in the only place");
    }

    #[tokio::test(start_paused = true)]
    async fn logins_through_a_gateway_are_few_at_a_time() {
        let logins = logins(32);
        let mut places = Vec::new();
        for _ in 0..20 {
            places.push(logins.place().await);
        }
        logins.spare_gateway();
        logins.spare_gateway();
        assert_eq!(logins.places.available_permits(), 0, "20 are in use, and 8 are allowed");
        places.truncate(GATEWAY_LOGINS_MAX);
        assert_eq!(logins.places.available_permits(), 0);
        places.clear();
        assert_eq!(logins.places.available_permits(), GATEWAY_LOGINS_MAX);
    }

    #[test]
    fn gateway_is_found_in_the_configuration_of_ssh() {
        assert!(names_gateway(b"user root\nproxyjump ops@h16\nport 22\n"));
        assert!(names_gateway(b"proxycommand nc %h %p\n"));
        assert!(!names_gateway(b"user root\nproxycommand none\nproxyusefdpass no\n"));
        assert!(!names_gateway(b""));
    }
}
