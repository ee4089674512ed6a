//! What to start: chosen step by step, by programs that have no command line of ours.
use crate::choices::Choices;
use crate::config::{Config, ConfigFile, Launch};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::join;
use crate::serving;
use crate::session::{Lookup, Session};
use crate::start::{ServerProgram, Start};
use sheaf_tree::filter::{Filter, FilterError};
use sheaf_tree::service::{Configs, Provider, Services};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A session that is to be started. Without any choice: the default cluster of the `sheaf.toml`
/// that is found, or this machine alone, inside this process.
pub struct SessionBuilder {
    environment: Environment,
    choices: Choices,
    services: Services,
    configs: Configs,
    program: Option<ServerProgram>,
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder").field("choices", &self.choices).finish_non_exhaustive()
    }
}

impl SessionBuilder {
    pub(crate) fn new(environment: &Environment) -> Self {
        Self {
            environment: environment.clone(),
            choices: Choices::default(),
            services: serving::services(environment),
            configs: Configs::new(),
            program: None,
        }
    }

    /// All choices at once; those made before are forgotten.
    #[must_use]
    pub fn choices(self, choices: Choices) -> Self {
        Self { choices, ..self }
    }

    /// Reads this file in place of the `sheaf.toml` that would be found.
    #[must_use]
    pub fn config(mut self, file: impl Into<PathBuf>) -> Self {
        self.choices.config = Some(file.into());
        self
    }

    /// The cluster of `sheaf.toml`.
    #[must_use]
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.choices.cluster = Some(name.into());
        self
    }

    /// So many servers inside this process, called n1, n2, … Each serves this machine's files, or
    /// beneath [`SessionBuilder::export`].
    #[must_use]
    pub fn embedded(mut self, servers: u32) -> Self {
        self.choices.embedded = Some(servers);
        self
    }

    /// So many server processes of this machine, called n1, n2, …; [`SessionBuilder::program`] says
    /// what they run.
    #[must_use]
    pub fn processes(mut self, servers: u32) -> Self {
        self.choices.processes = Some(servers);
        self
    }

    /// These hosts: those of the default cluster if it has them all, or else reached over ssh.
    #[must_use]
    pub fn hosts(mut self, hosts: impl Into<String>) -> Self {
        self.choices.on_hosts.push(hosts.into());
        self
    }

    /// How servers are started.
    #[must_use]
    pub fn launch(mut self, launch: Launch) -> Self {
        self.choices.launch = Some(launch);
        self
    }

    /// The directory that each server serves; `%h` stands for the host's name.
    #[must_use]
    pub fn export(mut self, directory: impl Into<String>) -> Self {
        self.choices.export = Some(directory.into());
        self
    }

    /// The shape of the tree, as in `sheaf.toml`: `auto`, `flat`, `1x8x8`, …
    #[must_use]
    pub fn tree(mut self, shape: impl Into<String>) -> Self {
        self.choices.tree = Some(shape.into());
        self
    }

    /// How long all that is done in the session may take, from the moment at which it is started.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.choices.timeout = Some(timeout);
        self
    }

    /// The program for nodes that are processes of their own: with these arguments it serves, by
    /// way of [`sheaf_tree::launch::serve`]. That of Sheaf itself takes `serve`.
    #[must_use]
    pub fn program<S: Into<String>>(
        mut self,
        path: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        self.program = Some(ServerProgram::new(path, arguments));
        self
    }

    /// A service of this name at the nodes of this process, beside those of
    /// [`services`](crate::services()). Other programs that serve have those that they register.
    ///
    /// # Panics
    /// When the name is longer than 64 bytes.
    #[must_use]
    pub fn service(self, name: &str, provider: impl Provider + 'static) -> Self {
        Self { services: self.services.with(name, provider), ..self }
    }

    /// One more filter, by which streams of services combine what their members say: see
    /// [`Registry::register`](sheaf_tree::filter::Registry::register).
    #[must_use]
    pub fn filter(
        self,
        name: &str,
        factory: impl Fn(&[u8]) -> Result<Box<dyn Filter>, FilterError> + Send + Sync + 'static,
    ) -> Self {
        Self { services: self.services.with_filter(name, factory), ..self }
    }

    /// What a service is told where it starts.
    #[must_use]
    pub fn service_config(mut self, name: impl Into<String>, config: impl Into<Vec<u8>>) -> Self {
        self.configs.insert(name.into(), config.into());
        self
    }

    /// All services of the nodes of this process with their filters, in place of
    /// [`services`](crate::services()).
    #[must_use]
    pub fn services(self, services: Services) -> Self {
        Self { services, ..self }
    }

    /// Joins a session that runs, whatever else was chosen; of what nodes do it is the filters that
    /// count.
    ///
    /// # Errors
    /// As [`Session::join`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn join(self, name: &str) -> Result<Session, SessionError> {
        let choices = Choices {
            session: Some(name.to_owned()),
            config: self.choices.config,
            ..Choices::default()
        };
        let config = Config::load_to_join(&choices, &self.environment)?;
        let services = self.services;
        // It is waited for, which must not hold up whatever else the runtime has to do.
        let found =
            tokio::task::spawn_blocking(move || Session::find(config, services.filters())).await;
        match found.map_err(|error| SessionError::io("join")(error.into()))?? {
            Lookup::Session(session) => Ok(*session),
            // What was asked for by its name runs, or is an error already.
            Lookup::Nothing(config) => {
                Err(config.sessions().absent_and(name, None, &config.start_words()))
            }
        }
    }

    /// Joins the session whose server runs on this host.
    ///
    /// # Errors
    /// As [`Session::here`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn here(self) -> Result<Session, SessionError> {
        let config = Config::of_file(&self.choices, &self.environment, ConfigFile::default())?;
        let services = self.services;
        let found =
            tokio::task::spawn_blocking(move || join::here(config, services.filters())).await;
        found.map_err(|error| SessionError::io("join")(error.into()))?
    }

    /// Starts the session.
    ///
    /// # Errors
    /// When the choices or the file are wrong, or the tree cannot be started. A host that does not
    /// come is no error: it is silent.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(self) -> Result<Session, SessionError> {
        let config = Config::load(&self.choices, &self.environment)?;
        let Self { services, configs, program, .. } = self;
        Start { services: &services, configs, program, umask: None, depth: 0 }.start(config).await
    }
}
