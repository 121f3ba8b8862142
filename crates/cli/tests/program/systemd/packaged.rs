//! Every file of `packaging/`.

use super::activated::folder;
use super::is_there;
use crate::program::Program;
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;

/// Maximum exposure of a service, in tenths: less is better, see systemd-analyze(1).
const MAX_EXPOSED: &str = "20";
/// Warning of systemd before version 253, which does not know `notify-reload`: the `notify` above it is in force.
const OLDER: &str = "Failed to parse service type, ignoring: notify-reload";

fn packaging() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(packaging().join(name)).expect("it is there")
}

/// Checks that the server that a configuration describes begins and ends in order. Its addresses, which another program may have, are others.
fn serves(name: &str, addresses: &[&str]) {
    let mut text = read(name);
    for address in addresses {
        assert!(text.contains(address), "{address} is not in {name}");
        text = text.replace(address, "127.0.0.1:0");
    }
    let folder = folder(name);
    let file = folder.join("sockdrawer.toml");
    std::fs::write(&file, text).expect("a file can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command.args(["serve", "--config"]).arg(&file).env("RUNTIME_DIRECTORY", &folder);
    let mut server = Program::run(command);
    let line = server.line();
    assert!(line.starts_with("listening on 127.0.0.1:"), "{line}: {:?}", server.end());
    assert!(folder.join("sockdrawer.sock").exists(), "there is a control socket");
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0));
    std::fs::remove_dir_all(folder).expect("it is the test's");
}

#[test]
fn the_example_configuration_serves() {
    serves("sockdrawer.toml", &["127.0.0.1:9464", "127.0.0.1:9000"]);
    // With what is commented out, but for the socket, which systemd does not pass here.
    let all = read("sockdrawer.toml")
        .replace(":9464", ":0")
        .replace("# [pool", "[pool")
        .replace("# protocol", "protocol")
        .replace("# listen", "listen")
        .replace("127.0.0.1:9000", "127.0.0.1:0");
    let folder = folder("example");
    let file = folder.join("sockdrawer.toml");
    std::fs::write(&file, all).expect("a file can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command.args(["serve", "--control", "none", "--config"]).arg(&file);
    let end = Program::run(command).end();
    assert!(end.code == Some(2) && end.stderr.contains("systemd passed no socket named web"), "{end:?}");
    assert!(read("sockdrawer.socket").contains("FileDescriptorName=web\n"), "the name is the one of the socket unit");
    std::fs::remove_dir_all(folder).expect("it is the test's");
}

#[test]
fn the_container_serves() {
    serves("container.toml", &["0.0.0.0:9000"]);
    let file = read("Containerfile");
    let root = packaging().join("..");
    for line in file.lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from")) {
        let path = line.split_whitespace().nth(1).expect("a path");
        assert!(root.join(path).exists(), "{path}");
    }
    let ignored = std::fs::read_to_string(root.join(".dockerignore")).expect("it is there");
    assert!(ignored.lines().any(|line| line == "target"), "a build context without gigabytes of builds");
    let words = |instruction: &str| -> Vec<String> {
        let line = file.lines().find(|line| line.starts_with(instruction)).expect("it has one");
        serde_json::from_str(&line[line.find('[').expect("a list")..]).expect("a list of JSON")
    };
    assert_eq!(words("ENTRYPOINT"), ["/usr/bin/sockdrawer"]);
    assert_eq!(words("CMD"), ["serve", "--config", "/etc/sockdrawer/sockdrawer.toml"]);
    assert!(file.contains("\nUSER 65532:65532\n") && file.contains("\nSTOPSIGNAL SIGTERM\n"));
}

#[test]
fn the_units_are_right_and_expose_little() {
    if !is_there("systemd-analyze") {
        return;
    }
    let folder = folder("units");
    let program = env!("CARGO_BIN_EXE_sockdrawer");
    let unit = read("sockdrawer.service");
    assert!(unit.contains("ExecStart=/usr/bin/sockdrawer serve --config /etc/sockdrawer/sockdrawer.toml\n"));
    std::fs::write(folder.join("sockdrawer.service"), unit.replace("/usr/bin/sockdrawer", program))
        .expect("a file can be written");
    std::fs::copy(packaging().join("sockdrawer.socket"), folder.join("sockdrawer.socket")).expect("a copy");
    let analyze = |words: &[&str]| {
        let output = Command::new("systemd-analyze").args(words).current_dir(&folder).output().expect("it starts");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{words:?}: {text}");
        text
    };
    let told = analyze(&["verify", "--man=no", "./sockdrawer.service", "./sockdrawer.socket"]);
    // Words about other units of this machine are not meant.
    let wrong: Vec<&str> = told.lines().filter(|line| line.contains("sockdrawer") && !line.contains(OLDER)).collect();
    assert_eq!(wrong, [""; 0]);
    analyze(&["security", "--offline=true", "--no-pager", "--threshold", MAX_EXPOSED, "./sockdrawer.service"]);
    std::fs::remove_dir_all(folder).expect("it is the test's");
}

#[test]
fn the_unit_of_the_guide_says_of_each_setting_what_the_packaged_one_says() {
    let guide = std::fs::read_to_string(packaging().join("../docs/guide/upgrading.md")).expect("it is there");
    let unit = guide.split("[Service]\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a unit");
    let packaged = read("sockdrawer.service");
    // These settings differ with the program: where it is, and that SIGUSR2 is what reloads it.
    let own = ["ExecStart", "ExecReload", "RuntimeDirectory"];
    let lines: Vec<&str> = unit.lines().filter(|line| !own.iter().any(|name| line.starts_with(name))).collect();
    let others: Vec<&&str> = lines.iter().filter(|line| !packaged.lines().any(|known| known == **line)).collect();
    assert!(others.is_empty() && lines.len() > 5, "{others:?} of {lines:?}");
}
