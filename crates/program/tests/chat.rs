//! The example of a service with a program of its own, started as people start it: each command has its name, protocol and setting.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const FILE: &str = include_str!("../examples/room.toml");

/// Returns the path of the example: cargo puts examples beside the folder of this test.
fn example() -> PathBuf {
    program("room")
}

fn program(name: &str) -> PathBuf {
    let mut folder = std::env::current_exe().expect("it runs");
    folder.pop();
    folder.pop();
    folder.join("examples").join(name)
}

/// Runs the program to its end, which has this code.
#[track_caller]
fn ends(words: &[&str], code: i32) -> Output {
    let output = Command::new(example()).args(words).stdin(Stdio::null()).output().expect("cargo test without --test builds it");
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[track_caller]
fn says(words: &[&str]) -> String {
    String::from_utf8(ends(words, 0).stdout).expect("text")
}

/// Returns the line on standard error with which the program ends with 2.
#[track_caller]
fn refused(words: &[&str]) -> String {
    let told = String::from_utf8(ends(words, 2).stderr).expect("text");
    assert_eq!(told.lines().count(), 1, "{told}");
    told
}

/// A folder of a test, with a file of these lines.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, text: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("sockdrawer-chat-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let text = text.replace("/tmp/chat.sock", &folder.join("chat.sock").display().to_string());
        std::fs::write(folder.join("chat.toml"), text.replace("127.0.0.1:9000", "127.0.0.1:0")).expect("a file");
        Folder(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of the program, ended with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(words: &[&str], folder: &Path) -> Server {
        Server::of(&example(), words, folder)
    }

    fn of(program: &Path, words: &[&str], folder: &Path) -> Server {
        let mut command = Command::new(program);
        command.args(words).env("XDG_RUNTIME_DIR", folder).env_remove("RUNTIME_DIRECTORY");
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("cargo test without --test builds it");
        let mut listening = String::new();
        let mut told = BufReader::new(child.stdout.take().expect("it was asked for"));
        told.read_line(&mut listening).expect("it says where it listens");
        let address = listening.trim().strip_prefix("listening on ").expect(&listening).to_owned();
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A member of the room, greeted.
struct Member(BufReader<TcpStream>, String);

impl Member {
    fn new(server: &Server) -> Member {
        let stream = TcpStream::connect(&server.address).expect("it listens");
        let mut member = Member(BufReader::new(stream), String::new());
        member.1 = member.line();
        member
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }
}

#[test]
fn a_file_is_served_asked_and_taken_over_by_a_new_build() {
    let folder = Folder::new("serve", &format!("upgrade = \"{}\"\n{FILE}", "UPGRADE"));
    let file = folder.path("chat.toml");
    let text = std::fs::read_to_string(&file).expect("it is there").replace("UPGRADE", &folder.path("upgrade"));
    std::fs::write(&file, text).expect("the folder takes it");
    let server = Server::start(&["serve", "--config", &file], &folder.0);
    let (mut one, mut other) = (Member::new(&server), Member::new(&server));
    assert_eq!((one.1.as_str(), other.1.as_str()), ("welcome to the room", "welcome to the room"));
    one.say("hey");
    assert_eq!((one.line().as_str(), other.line().as_str()), ("hey", "hey"));
    let control = folder.path("chat.sock");
    let ctl = |words: &[&str]| says(&[&["ctl", "--control", &control], words].concat());
    let status = ctl(&["status"]);
    assert!(status.contains(&format!("version {}", env!("CARGO_PKG_VERSION"))) && status.contains("chat  chat"), "{status}");
    let upgraded = says(&["upgrade", &folder.path("upgrade")]);
    assert!(upgraded.contains("moved 2 in") && upgraded.contains("serves alone"), "{upgraded}");
    other.say("still here");
    assert_eq!((one.line().as_str(), other.line().as_str()), ("still here", "still here"));
    assert!(ctl(&["stop"]).contains("then the server ends"));
    assert_eq!(one.line(), "", "the new build has ended");
}

#[test]
fn what_the_next_build_does_not_carry_is_told() {
    let folder = Folder::new("carried", FILE);
    let [upgrade, control, at] = ["upgrade", "next.sock", "at"].map(|name| folder.path(name));
    let _shop = Server::of(&program("shop"), &["serve", "-l", &format!("unix:{at}"), "--upgrade", &upgrade], &folder.0);
    let room = example().display().to_string();
    let next = ["serve", "-l", &format!("unix:{at}"), "--upgrade", &upgrade, "--control", &control];
    let told = says(&[&["upgrade", &upgrade, "--", &room], &next[..]].concat());
    assert!(told.contains("  table: lost, for the new build carries nothing of this name"), "{told}");
    assert!(says(&["ctl", "--control", &control, "stop"]).contains("then the server ends"));
}

#[test]
fn the_only_protocol_need_not_be_named_and_the_control_socket_has_the_name_of_the_program() {
    let folder = Folder::new("options", FILE);
    let server =
        Server::start(&["serve", "-l", "127.0.0.1:0", "--greeting", "hey", "--control", &folder.path("c.sock")], &folder.0);
    assert_eq!(Member::new(&server).1, "hey");
    drop(server);
    let text = FILE.replace("control =", "# control =");
    let folder = Folder::new("default", &text);
    let _server = Server::start(&["serve", "--config", &folder.path("chat.toml")], &folder.0);
    let mut status = Command::new(example());
    status.args(["ctl", "status"]).env("XDG_RUNTIME_DIR", &folder.0).env_remove("RUNTIME_DIRECTORY").env_remove("CHAT_CONTROL");
    let output = status.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(folder.0.join("chat.sock").exists());
    let named = status.env("CHAT_CONTROL", "/no/such.sock").output().expect("it runs");
    assert!(String::from_utf8_lossy(&named.stderr).contains("no control socket at /no/such.sock"));
}

#[test]
fn a_mistake_in_the_setting_of_the_service_is_told_with_its_place() {
    let folder = Folder::new("check", &FILE.replace("greeting", "greting"));
    let file = folder.path("chat.toml");
    let told = refused(&["check", &file]);
    assert!(
        told.starts_with(&format!("{file}:6:1: pool.chat.greting: unknown setting `greting`: did you mean `greeting`?")),
        "{told}"
    );
    let folder = Folder::new("value", &FILE.replace("welcome", "welcome\\n"));
    assert!(refused(&["check", &folder.path("chat.toml")]).contains("pool.chat.greeting: `welcome"));
    let folder = Folder::new("good", FILE);
    let good = says(&["check", &folder.path("chat.toml")]);
    assert!(good.contains("chat  chat      loops") && good.ends_with("good\n"), "{good}");
    assert!(refused(&["check"]).contains("cannot read /etc/chat/chat.toml"));
    assert!(
        refused(&["serve", "--greting", "x"])
            .ends_with("unknown option `--greting`: did you mean `--greeting`? (try: chat serve --help)\n")
    );
    assert!(refused(&["serve", "caht"]).contains("unknown protocol `caht`: did you mean `chat`?"));
}

#[test]
fn what_is_generated_has_the_name_and_the_setting_of_the_service() {
    let man = says(&["generate", "man"]).replace("\\-", "-");
    for part in [".TH chat 1", "CHAT CTL DRAIN", "greeting", "CHAT_CONTROL", "chat.sock", "/etc/chat/chat.toml", "chat serve"] {
        assert!(man.contains(part), "no {part} in {man}");
    }
    let unit = says(&["generate", "unit"]);
    for line in
        ["ExecStart=/usr/bin/chat serve --config /etc/chat/chat.toml\n", "RuntimeDirectory=chat\n", "man:chat(1)", "LimitNOFILE="]
    {
        assert!(unit.contains(line), "{line}: {unit}");
    }
    let schema: serde_json::Value = serde_json::from_str(&says(&["generate", "schema"])).expect("JSON");
    assert_eq!(schema["title"], "Configuration of chat");
    let pool = &schema["properties"]["pool"]["additionalProperties"]["allOf"][0]["then"]["properties"];
    assert_eq!(pool["greeting"]["description"], "The line that each new member gets. Unless given: hello.");
    for shell in ["bash", "zsh", "fish"] {
        let completions = says(&["generate", "completions", shell]);
        assert!(completions.contains("greeting") && completions.contains("chat"), "{shell}");
        assert!(!completions.contains("sockdrawer"), "{shell}");
    }
    let mut help: Vec<String> = ["serve", "check", "ctl", "upgrade", "parent", "generate"].map(|of| says(&[of, "--help"])).into();
    help.push(says(&["--help"]));
    assert_eq!(says(&["--version"]), format!("chat {}\n", env!("CARGO_PKG_VERSION")));
    help.extend([man, schema.to_string()]);
    for text in help {
        assert!(!text.contains("sockdrawer") && !text.contains("exec: fork") && !text.contains("http: 60s"), "{text}");
    }
}
