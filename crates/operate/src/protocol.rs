//! Protocols that pools can run, by name: a program registers them, with settings of their own.

use crate::layers;
use crate::setting::{Setting, Values};
use sockdrawer::{Behaviour, Config, Model};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Takes the connections of a listener, of a pool with these values.
#[cfg(feature = "tokio")]
type Serve = dyn Fn(sockdrawer::tasks::Listener, &Values) + Send + Sync;
type Build = dyn Fn(&Values) -> Result<Config, String> + Send + Sync;
type Checks = dyn Fn(&Values, &dyn Fn(Behaviour) -> Behaviour) -> Option<Checked> + Send + Sync;
type Looks = dyn Fn(&Values) -> Option<u64> + Send + Sync;

/// The result of a [check](Protocol::checks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Time until the next check of this pool.
    pub again: Duration,
    /// A line that says which finding is another now than before: the pool begins a new generation. None: none is.
    pub news: Option<String>,
}

/// A protocol that a configuration can name.
///
/// ```
/// use sockdrawer::Config;
/// use sockdrawer_catalog::http::Http;
/// use sockdrawer_operate::{Kind, Protocol, Setting};
/// use std::time::Duration;
///
/// const SLOW: Setting = Setting::new("slow", Kind::Time, "How long the slow answer takes").unless_given("30ms");
/// let http = Protocol::new("http", "Answers two paths", |values| {
///     let slow_duration = values.time("slow").unwrap_or(Duration::from_millis(30));
///     Ok(Config::accept(Http { slow_duration, in_worker: true }))
/// })
/// .setting(SLOW);
/// # let _ = http;
/// ```
#[derive(Clone)]
pub struct Protocol {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) settings: Vec<Setting>,
    pub(crate) sees: Vec<&'static str>,
    pub(crate) build: Arc<Build>,
    pub(crate) looks: Option<Arc<Looks>>,
    pub(crate) checks: Option<Arc<Checks>>,
    #[cfg(feature = "tokio")]
    pub(crate) serve: Option<Arc<Serve>>,
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protocol").field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Protocol {
    /// Makes a protocol with the configuration that its pools begin with: its service, and defaults that differ from those of
    /// [`Config::accept`]. The settings of a pool are applied to it. `build` is given the pool's values; it is called again when one of the
    /// protocol's own settings has changed, and then its service starts a new generation.
    pub fn new(
        name: &'static str,
        help: &'static str,
        build: impl Fn(&Values) -> Result<Config, String> + Send + Sync + 'static,
    ) -> Protocol {
        Protocol {
            name,
            help,
            settings: Vec::new(),
            sees: Vec::new(),
            build: Arc::new(build),
            looks: None,
            checks: None,
            #[cfg(feature = "tokio")]
            serve: None,
        }
    }

    /// Makes a protocol whose connections are taken by async code on a runtime of the program's own, such as an axum app: `serve` is given the
    /// listener of each pool that names the protocol, also of one that a reload adds, and a new one for each new generation; it must not block.
    ///
    /// ```
    /// use sockdrawer::tasks::Listener;
    /// use sockdrawer_operate::Protocol;
    ///
    /// async fn take(mut listener: Listener) {
    ///     while let Some(connection) = listener.accept().await {
    ///         drop(connection);
    ///     }
    /// }
    ///
    /// let runtime = tokio::runtime::Runtime::new()?;
    /// let web = Protocol::listener("web", "a page", move |listener, _values| {
    ///     runtime.spawn(take(listener));
    /// });
    /// # let _ = web;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn listener(
        name: &'static str,
        help: &'static str,
        serve: impl Fn(sockdrawer::tasks::Listener, &Values) + Send + Sync + 'static,
    ) -> Protocol {
        let build = |_: &Values| Ok(Config::accept(Behaviour::listener()).model(Model::Tasks));
        Protocol { serve: Some(Arc::new(serve)), ..Protocol::new(name, help, build) }
    }

    /// Adds a setting of this protocol alone.
    #[must_use]
    pub fn setting(mut self, setting: Setting) -> Protocol {
        self.settings.push(setting);
        self
    }

    /// Says that its connections [connect](sockdrawer::Context::connect) to others and are joined with these: adds the settings of TLS with them, `tls-to` and those that go
    /// with it, and refuses models under which both sides would not be in one loop.
    #[must_use]
    pub fn connects(mut self) -> Protocol {
        self.settings.extend(crate::tls::TO_SETTINGS);
        let build = self.build;
        self.build = Arc::new(move |values| match values.text("model") {
            Some(model @ ("single" | "threads" | "fork" | "tasks")) => {
                Err(format!("both sides of a pair run in one loop, which {model} has not: use loops or prefork"))
            }
            _ => build(values),
        });
        self.sees("model")
    }

    /// Has the protocol look again at what its settings name, such as hosts of the network: the function returns a number of what it found, which is another where that is something
    /// else, and None where it could not look. It is called each half minute on a thread of its own and may block; with another number `build` is called again, and its service
    /// starts a new generation.
    #[must_use]
    pub fn looks(mut self, looks: impl Fn(&Values) -> Option<u64> + Send + Sync + 'static) -> Protocol {
        self.looks = Some(Arc::new(looks));
        self
    }

    /// Has what pools connect to checked while the program runs: the function makes one check of a pool with these values, on a thread of its own, and may block for
    /// some seconds. The second argument gives a behaviour that connects the pool's own TLS with what it [connects](Protocol::connects) to. What a check finds
    /// belongs into the number that [`Protocol::looks`] returns: with news the pool is changed. None: these values want no check.
    #[must_use]
    pub fn checks(
        mut self,
        checks: impl Fn(&Values, &dyn Fn(Behaviour) -> Behaviour) -> Option<Checked> + Send + Sync + 'static,
    ) -> Protocol {
        self.checks = Some(Arc::new(checks));
        self
    }

    /// Returns the number of what the settings name now; None: it could not look, or there is nothing.
    pub(crate) fn look(&self, values: &Values) -> Option<u64> {
        self.looks.as_ref()?(values)
    }

    /// Says that `build` looks at this setting of the pool too.
    #[must_use]
    pub fn sees(mut self, setting: &'static str) -> Protocol {
        self.sees.push(setting);
        self
    }

    /// Returns the name of the protocol.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what the protocol does, in a few words.
    pub fn help(&self) -> &'static str {
        self.help
    }

    /// Returns the settings of this protocol alone.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Returns the model that runs a pool of this protocol with these settings.
    pub fn model<'a>(&self, values: &'a Values) -> &'a str {
        let unless_set = || (self.build)(values).map_or(Model::Loops, |config| config.model).name();
        values.text("model").unwrap_or_else(unless_set)
    }

    /// Returns the settings because of which the service of one, with its layers, is not equal to that of the other.
    pub(crate) fn differing(&self, one: &Values, other: &Values) -> Vec<&'static str> {
        let seen = self.settings.iter().map(|setting| setting.name).chain(self.sees.iter().copied());
        layers::names().chain(seen).filter(|name| one.set.get(name) != other.set.get(name)).collect()
    }
}
