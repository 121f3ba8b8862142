//! The example of a user's own service, started as a program: its own setting is checked, changed and rolled back while it runs.

use sockdrawer_operate::client::Client;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Where cargo puts examples, beside the folder of this test.
fn example() -> PathBuf {
    let mut folder = std::env::current_exe().expect("it runs");
    folder.pop();
    folder.pop();
    folder.join("examples/shout")
}

fn shout(address: &str, line: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    writeln!(stream, "{line}").expect("it reads");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("it answers");
    answer
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_service_of_forty_lines_is_operated() {
    let folder = std::env::temp_dir().join(format!("sockdrawer-shout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (file, control) = (folder.join("shout.toml"), folder.join("c.sock"));
    let configuration = include_str!("../examples/shout.toml")
        .replace("/tmp/shout.sock", &control.display().to_string())
        .replace("127.0.0.1:9000", "127.0.0.1:0");
    std::fs::write(&file, &configuration).expect("a file");
    let child = Command::new(example())
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("cargo test without --test builds it");
    let mut server = Ends(child);
    let mut listening = String::new();
    let mut told = BufReader::new(server.0.stdout.take().expect("it was asked for"));
    told.read_line(&mut listening).expect("it says where it listens");
    let address = listening.trim().strip_prefix("listening on ").expect(&listening).to_owned();
    assert_eq!(shout(&address, "hey"), "HEY!!\n");
    let ask = |path: &str| {
        let mut client = Client::at(&control);
        let answer = client.send("POST", path, &[], b"").expect("it answers");
        (answer.status, answer.text().expect("text"))
    };
    std::fs::write(&file, configuration.replace("marks = 2", "marks = 3")).expect("a file");
    assert_eq!((ask("/reload").0, shout(&address, "hey")), (200, "HEY!!!\n".to_owned()));
    std::fs::write(&file, configuration.replace("marks = 2", "mark = 3")).expect("a file");
    let (status, line) = ask("/reload");
    assert!(status == 422 && line.contains("unknown setting `mark`: did you mean `marks`?"), "{line}");
    assert_eq!(shout(&address, "hey"), "HEY!!!\n");
    assert_eq!(ask("/rollback").0, 200);
    assert_eq!(shout(&address, "hey"), "HEY!!\n");
    assert_eq!(ask("/stop").0, 200);
    assert_eq!(server.0.wait().expect("a child").code(), Some(0));
    std::fs::remove_dir_all(&folder).expect("it is there");
}
