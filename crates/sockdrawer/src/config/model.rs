//! The models: what runs the connections.

/// The threads, processes or loops that run the connections. A protocol is written once for all models. What a model cannot do is refused when the
/// pool starts, with an error that names the model and what to use instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Model {
    /// A single connection at a time, each to its end.
    Single,
    /// A thread for each connection.
    Threads,
    /// A process for each connection. Needs the feature `processes`.
    Fork,
    /// N processes, each with loops. Needs the feature `processes`.
    Prefork,
    /// N threads, each an event loop with many connections.
    #[default]
    Loops,
    /// Event loops that are runtimes of async tasks. Needs the feature `tokio`.
    Tasks,
}

impl Model {
    /// All models.
    pub const ALL: [Model; 6] = [Model::Single, Model::Threads, Model::Fork, Model::Prefork, Model::Loops, Model::Tasks];

    /// Returns the model's name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Model::Single => "single",
            Model::Threads => "threads",
            Model::Fork => "fork",
            Model::Prefork => "prefork",
            Model::Loops => "loops",
            Model::Tasks => "tasks",
        }
    }

    /// Returns true where the model has any number of loops and workers. The other models accept in one loop, and run jobs where the connection runs.
    pub(crate) fn has_loops(self) -> bool {
        matches!(self, Model::Prefork | Model::Loops | Model::Tasks)
    }

    /// Returns true where connections run in other processes.
    pub(crate) fn has_processes(self) -> bool {
        matches!(self, Model::Fork | Model::Prefork)
    }
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
