//! The services of a server: what each node of a session can be asked for.
use crate::audit::HostAudit;
use crate::environment::Environment;
use crate::gates;
use sheaf_group::Servers;
use sheaf_group::audit::ChangeLog;
use sheaf_group::tool::Tools;
use sheaf_tree::filter::Registry;
use sheaf_tree::probe::{self, PROBE};
use sheaf_tree::service::Services;
use std::sync::Arc;
use std::time::Duration;

/// All services of a server, for the nodes of one process: group operations, tools, links of
/// programs on hosts (gates), probes of `sheaf tree bench`, files of mounted views and log clients of
/// traces. Without the crate's feature `full` there are no tools, views and traces.
///
/// Every program whose nodes are processes calls this in each of them. A node answers `ENOSYS` to a
/// stream of a service that it lacks.
///
/// ```
/// let services = sheaf_session::services(&sheaf_session::Environment::default());
/// assert!(services.names().any(|name| name == "groups"));
/// ```
#[must_use]
pub fn services(environment: &Environment) -> Services {
    Serving::new().services(environment)
}

/// The filters of [`services`]: a client that joins a session needs them.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::with_builtins();
    sheaf_group::aggregate::register(&mut registry);
    #[cfg(feature = "full")]
    let registry = sheaf_log::served::LogClients::filters(registry);
    registry
}

/// The servers of group operations and tools behind [`services`], for a program that waits for them
/// before it ends.
pub struct Serving {
    servers: Servers,
    audit: Arc<HostAudit>,
    #[cfg(feature = "full")]
    views: sheaf_mount::ViewAudit,
}

impl Default for Serving {
    fn default() -> Self {
        Self::new()
    }
}

impl Serving {
    /// Servers that have done nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_tools(|_| {})
    }

    /// [`Serving::new`], with the tools that `register` adds.
    #[must_use]
    pub fn with_tools(register: impl FnOnce(&mut Tools)) -> Self {
        let mut tools = tools();
        register(&mut tools);
        let audit = Arc::new(HostAudit::default());
        let changes: Arc<dyn ChangeLog> = Arc::clone(&audit) as _;
        Self {
            servers: Servers::new(tools).with_changes(Arc::clone(&changes)),
            audit,
            #[cfg(feature = "full")]
            views: sheaf_mount::ViewAudit::kept_in(changes),
        }
    }

    /// What [`services`] lists, of these servers.
    #[must_use]
    pub fn services(&self, environment: &Environment) -> Services {
        let services = self.servers.register(Services::new(registry()).with(PROBE, probe::provide));
        #[cfg(feature = "full")]
        let services = sheaf_log::served::LogClients::default()
            .register(services)
            .with(sheaf_mount::FILES, sheaf_mount::service(self.views.clone()))
            .with(sheaf_mount::FILES_NEAR, sheaf_mount::near_service());
        gates::register(services, environment, &self.audit)
    }

    /// [`Servers::settle`], and the audit of views is written.
    pub fn settle(&self, patience: Duration) {
        self.servers.settle(patience);
        #[cfg(feature = "full")]
        self.views.write();
    }
}

#[cfg(feature = "full")]
fn tools() -> Tools {
    let mut tools = sheaf_tools::tools();
    sheaf_mount::register(&mut tools);
    tools
}

#[cfg(not(feature = "full"))]
fn tools() -> Tools {
    Tools::default()
}
