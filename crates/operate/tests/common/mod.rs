//! An example that is started as a program, in a folder of its own.

use sockdrawer_operate::client::Client;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A folder with a configuration, which is removed at the end.
pub(crate) struct Scene {
    pub(crate) folder: PathBuf,
}

/// A program, which is killed at the end, and where it listens.
pub(crate) struct Ends {
    pub(crate) child: Child,
    pub(crate) listening: Vec<String>,
}

impl Scene {
    pub(crate) fn new(name: &str) -> Scene {
        let folder = std::env::temp_dir().join(format!("sockdrawer-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Scene { folder }
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.folder.join("c.sock")
    }

    fn file(&self) -> PathBuf {
        self.folder.join("configuration.toml")
    }

    pub(crate) fn configure(&self, configuration: &str) {
        std::fs::write(self.file(), configuration).expect("a file");
    }

    /// Starts the example, which says where it listens.
    pub(crate) fn start(&self, example: &str, listeners: usize) -> Ends {
        // Where cargo puts examples, beside the folder of this test.
        let mut folder = std::env::current_exe().expect("it runs");
        folder.pop();
        folder.pop();
        let mut starts = Command::new(folder.join("examples").join(example));
        let child = starts.arg(self.file()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("cargo test without --test builds it");
        let told = BufReader::new(child.stdout.take().expect("it was asked for"));
        let lines = told.lines().map_while(Result::ok).take(listeners);
        let listening = lines.map(|line| line.strip_prefix("listening on ").expect(&line).to_owned()).collect();
        Ends { child, listening }
    }

    /// Returns the status and the body of an answer of the control socket.
    pub(crate) fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let mut client = Client::at(self.control());
        let answer = client.send(method, path, &[], b"").expect("it answers");
        (answer.status, answer.text().expect("text"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind, either.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
