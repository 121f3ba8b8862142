//! The example of a user's own service, started as a program: its own setting is checked, changed and rolled back while it runs.

mod common;

use common::Scene;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

fn shout(address: &str, line: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    writeln!(stream, "{line}").expect("it reads");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_service_of_forty_lines_is_operated() {
    let scene = Scene::new("shout");
    let configuration = include_str!("../examples/shout.toml")
        .replace("/tmp/shout.sock", &scene.control().display().to_string())
        .replace("127.0.0.1:9000", "127.0.0.1:0");
    scene.configure(&configuration);
    let mut server = scene.start("shout", 1);
    let address = server.listening[0].clone();
    assert_eq!(shout(&address, "hey"), "HEY!!\n");
    let post = |path: &str| scene.ask("POST", path);
    scene.configure(&configuration.replace("marks = 2", "marks = 3"));
    assert_eq!((post("/reload").0, shout(&address, "hey")), (200, "HEY!!!\n".to_owned()));
    scene.configure(&configuration.replace("marks = 2", "mark = 3"));
    let (status, line) = post("/reload");
    assert!(status == 422 && line.contains("unknown setting `mark`: did you mean `marks`?"), "{line}");
    assert_eq!(shout(&address, "hey"), "HEY!!!\n");
    assert_eq!(post("/rollback").0, 200);
    assert_eq!(shout(&address, "hey"), "HEY!!\n");
    assert_eq!(post("/stop").0, 200);
    assert_eq!(server.child.wait().expect("a child").code(), Some(0));
}
