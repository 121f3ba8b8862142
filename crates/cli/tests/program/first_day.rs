//! The first day of the guide, and its service of axum: their pieces are parts of examples. The file of the first day is served, and its proof proves what it says.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const GUIDE: &str = include_str!("../../../../docs/guide/first-day.md");
const EXAMPLE: &str = include_str!("../../../program/examples/room.rs");
const AXUM: &str = include_str!("../../../../docs/guide/axum-service.md");

/// Returns a guide's blocks of code of this kind.
fn blocks(guide: &'static str, kind: &str) -> Vec<&'static str> {
    let begin = format!("```{kind}\n");
    guide.split(begin.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// Returns the lines without their indentation, which differs.
fn plain(code: &str) -> String {
    code.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

#[test]
fn each_piece_is_a_part_of_the_example() {
    let example = plain(EXAMPLE);
    let pieces = blocks(GUIDE, "rust");
    assert!(pieces.len() >= 5, "{}", pieces.len());
    for piece in pieces.iter().flat_map(|block| block.split("\n\n")) {
        assert!(example.contains(plain(piece).trim()), "not in the example:\n{piece}");
    }
}

#[test]
fn the_service_of_axum_is_the_example_and_its_file() {
    let example = include_str!("../../../operate/examples/web.rs");
    let code: String = blocks(AXUM, "rust").join("\n");
    let file = include_str!("../../../operate/examples/web.toml");
    let lines = |text: &str| {
        text.lines().filter(|line| !line.is_empty() && !line.starts_with("//!")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&code), lines(example));
    let configuration = blocks(AXUM, "toml").into_iter().find(|block| block.contains("[pool.web]")).expect("a configuration");
    assert_eq!(lines(configuration), lines(file)[1..], "but for its first line, which names the example");
    // Lines that the reader takes the sign of a comment from.
    let tls: String = file.replace("# tls-", "tls-");
    assert!(tls.parse::<toml::Table>().is_ok_and(|table| table["pool"]["web"]["tls-alpn"].as_array().is_some()), "{tls}");
}

/// The example, as cargo built it beside the program, and a folder for its files.
struct Chat {
    program: PathBuf,
    folder: PathBuf,
    server: Option<Child>,
}

impl Drop for Chat {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            // It is replaced by a build that is no child of this process: it is stopped by name.
            let _ = Command::new(&self.program).args(["ctl", "stop", "--control"]).arg(self.folder.join("chat.sock")).output();
            let _ = server.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn its_file_is_served_and_its_upgrades_lose_nothing() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_sockdrawer")).with_file_name("examples").join("room");
    if !program.exists() {
        return println!("skipped: the example room is built by cargo test of the whole workspace");
    }
    let folder = std::env::temp_dir().join(format!("sockdrawer-first-day-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut chat = Chat { program, folder, server: None };
    let file = blocks(GUIDE, "toml").into_iter().find(|block| block.contains("[pool.chat]")).expect("a configuration");
    let file = file.replace("/tmp/", &format!("{}/", chat.folder.display())).replace(":9000", ":0").replace(":9464", ":0");
    let path = chat.folder.join("chat.toml");
    std::fs::write(&path, file).expect("a file");
    let checked = Command::new(&chat.program).arg("check").arg(&path).output().expect("it runs");
    assert!(checked.status.success(), "{checked:?}");
    let mut serves = Command::new(&chat.program);
    let server = serves.args(["serve", "--config"]).arg(&path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let server = chat.server.insert(server.expect("it runs"));
    let mut listening = String::new();
    let mut told = BufReader::new(server.stdout.take().expect("it was asked for"));
    told.read_line(&mut listening).expect("it says where it listens");
    let address = listening.trim().strip_prefix("listening on ").expect(&listening);

    let command = blocks(GUIDE, "console").into_iter().find(|block| block.contains("sockdrawer trial")).expect("a trial");
    let command = command.trim().trim_start_matches("$ ").replace("\\\n", " ").replace("127.0.0.1:9000", address);
    let upgrade = format!("{} upgrade {}/chat.upgrade", chat.program.display(), chat.folder.display());
    let command = command.replace("chat upgrade /tmp/chat.upgrade", &upgrade).replace("--every 1s", "--every 300ms");
    let words = shlex::split(&command).expect("as a shell takes it");
    assert_eq!(words[0], "sockdrawer");
    let proved = Command::new(env!("CARGO_BIN_EXE_sockdrawer")).args(&words[1..]).output().expect("it runs");
    let shown = String::from_utf8_lossy(&proved.stdout).into_owned();
    assert!(proved.status.success() && shown.contains("verdict: good"), "{command}\n{shown}{proved:?}");
    let heard = shown.lines().find(|line| line.starts_with("messages of ")).expect("clients hear each other");
    assert!(heard.contains(" 0 lost, 0 doubled, 0 out of order"), "{heard}");
}
