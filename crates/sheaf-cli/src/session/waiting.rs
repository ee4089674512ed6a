//! What a command waits for while the hosts of its own tree start.
use crate::output::{Output, tell_for_now, wipe};
use sheaf_core::RangeSet;
use sheaf_session::Session;
use sheaf_session::config::Launch;
use sheaf_tree::Notice;
use std::future::Future;
use std::time::Duration;

/// How long nothing is said.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long hosts that run have to say so.
const COUNT_TIME: Duration = Duration::from_millis(300);

/// Says which hosts have not started, if they take long, as long as this is polled: to a
/// person who looks on, until they have, and in the log.
pub fn tell_of(session: &Session, output: &Output) -> impl Future<Output = ()> + use<> {
    let (client, topology) = (session.client().clone(), session.topology().clone());
    let is_seen = output.stderr_is_terminal && !output.json && !output.quiet;
    let config = session.config();
    let limit_ms = config.tuning.ssh_login_timeout_ms.value;
    let over_ssh = matches!(config.launch(), Launch::Ssh);
    let limit = if over_ssh { login_limit(limit_ms) } else { String::new() };
    async move {
        let network = client.network();
        if network.ready(PATIENCE).await.is_some() {
            return;
        }
        let survey = network.survey(COUNT_TIME).await;
        let nodes = survey.reports.iter().filter_map(|report| topology.node(report.rank));
        let there: RangeSet = nodes.filter_map(|node| node.leaf_index()).collect();
        let mut missing = network.everyone().difference(&there);
        for notice in network.notices() {
            match notice {
                Notice::Lost { leaves, .. } => missing = missing.difference(&leaves),
                Notice::Joined { leaves, .. } => missing.union_with(&leaves.difference(&there)),
                _ => {}
            }
        }
        if missing.is_empty() {
            return;
        }
        let (count, all) = (there.len(), network.leaf_count());
        let missing = client.fold(&missing);
        let text = format!("waiting for {missing} ({count} of {all} hosts run{limit})");
        tracing::info!("{text}");
        if is_seen {
            tell_for_now(format_args!("sheaf: {text}"));
            let _all = network.ready(Duration::MAX).await;
            wipe();
        }
    }
}

/// How long a login may hang, as it is set: short, as the line stands on a terminal.
fn login_limit(limit_ms: u64) -> String {
    format!("; ssh_login_timeout_ms = {limit_ms}")
}
