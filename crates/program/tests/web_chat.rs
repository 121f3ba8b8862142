//! The chat in the browser, and without one: the page, two guests that hear each other, and a new build that takes over from the program under them. Where there
//! is no Chromium its test says that it is skipped.

use serde_json::{Value, json};
use sockdrawer::connecting::Connecting;
use sockdrawer::{Config, Pool, Selector, Step};
use sockdrawer_websocket::{Answer, Close, Frame, Message, MessageProtocol, MessageService, Opening, Socket, WebSocket};
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the path of the example: cargo puts examples beside the folder of this test.
fn example() -> PathBuf {
    let mut folder = std::env::current_exe().expect("it runs");
    folder.pop();
    folder.pop();
    folder.join("examples/web_chat")
}

struct Server {
    child: Child,
    folder: PathBuf,
    address: String,
}

impl Server {
    fn start(name: &str) -> Server {
        let folder = std::env::temp_dir().join(format!("sockdrawer-web-chat-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut command = Command::new(example());
        command.args(["serve", "--listen", "127.0.0.1:0", "--upgrade"]).arg(folder.join("upgrade"));
        command.arg("--control").arg(folder.join("control"));
        command.env("XDG_RUNTIME_DIR", &folder).env_remove("RUNTIME_DIRECTORY");
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("cargo test without --test builds it");
        let mut listening = String::new();
        let mut told = BufReader::new(child.stdout.take().expect("it was asked for"));
        told.read_line(&mut listening).expect("it says where it listens");
        let address = listening.trim().strip_prefix("listening on ").expect(&listening).to_owned();
        Server { child, folder, address }
    }

    /// Asks for a page with these fields. Returns the answer.
    fn asks(&self, path: &str, fields: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.address);
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text, and the end");
        answer
    }

    /// Has a new build take over.
    fn upgrade(&self) {
        let output = Command::new(example()).arg("upgrade").arg(self.folder.join("upgrade")).output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The build that serves by now is no child of this process.
        let _ = Command::new(example()).args(["ctl", "--control"]).arg(self.folder.join("control")).arg("stop").output();
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A guest's end: it says frames of this process, and tells what it hears.
#[derive(Clone)]
struct Listener(Sender<String>);

impl MessageService for Listener {
    type Protocol = Listener;

    fn open(&self, _opening: &mut Opening<'_>) -> Result<Listener, Answer> {
        Ok(self.clone())
    }
}

impl MessageProtocol for Listener {
    fn opened(&mut self, _socket: &mut Socket<'_>) -> Step {
        let _ = self.0.send("open".to_owned());
        Step::Continue
    }

    fn message(&mut self, message: Message<'_>, _socket: &mut Socket<'_>) -> Step {
        let Message::Text(text) = message else { panic!("bytes of a chat") };
        // The test ends first where it fails.
        let _ = self.0.send(text.to_owned());
        Step::Continue
    }

    fn closed(&mut self, close: &Close, _socket: &mut Socket<'_>) {
        let _ = self.0.send(format!("closed {}", close.code));
    }
}

struct Guest {
    pool: Pool,
    heard: Receiver<String>,
}

impl Guest {
    fn new(server: &Server, name: &str, origin: &str) -> Guest {
        let url = format!("ws://{}/chat?name={name}", server.address);
        Guest::at(&server.address, &url, |client| client.field("Origin", origin))
    }

    /// Makes a connection to any WebSocket.
    fn at(address: &str, url: &str, with: impl FnOnce(WebSocket<Listener>) -> WebSocket<Listener>) -> Guest {
        let (tells, heard) = channel();
        let client = with(WebSocket::client(Listener(tells), url).max_message(16 << 20));
        let connecting = Connecting::to([address]).keep(1).total(1);
        let pool = Pool::start(Config::connect(client, connecting)).expect("it starts");
        let guest = Guest { pool, heard };
        guest.hears("open");
        guest
    }

    fn says(&self, text: &str) {
        self.pool.notify(&Selector::All, Frame::text(text)).expect("there is room");
    }

    fn hears(&self, line: &str) {
        assert_eq!(self.heard.recv_timeout(PATIENCE).as_deref(), Ok(line));
    }
}

#[test]
fn guests_of_the_page_go_on_under_a_new_build() {
    let server = Server::start("guests");
    assert!(server.asks("/", "").starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "the page");
    assert!(server.asks("/else", "").starts_with("HTTP/1.1 404"), "no page");
    let origin = format!("http://{}", server.address);
    let ada = Guest::new(&server, "ada", &origin);
    ada.hears(r#"{"from":"","text":"ada is here"}"#);
    let bob = Guest::new(&server, "bob%20b", &origin);
    [&ada, &bob].into_iter().for_each(|guest| guest.hears(r#"{"from":"","text":"bob b is here"}"#));
    for text in ["hello", "grüße <b>"] {
        ada.says(text);
        let line = format!(r#"{{"from":"ada","text":"{text}"}}"#);
        [&ada, &bob].into_iter().for_each(|guest| guest.hears(&line));
        server.upgrade();
    }
    bob.says("still here");
    [&ada, &bob].into_iter().for_each(|guest| guest.hears(r#"{"from":"bob b","text":"still here"}"#));
    bob.says(&"x".repeat(3000));
    bob.hears("closed 1009");
    ada.hears(r#"{"from":"","text":"bob b has left"}"#);
}

#[test]
fn pages_of_other_servers_are_turned_away() {
    let server = Server::start("others");
    let handshake = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (path, origin, status) in
        [("/chat?name=eve", "http://evil.example", "403"), ("/chat", "", "400"), ("/else?name=eve", "", "404")]
    {
        let origin = if origin.is_empty() { format!("http://{}", server.address) } else { origin.to_owned() };
        let answer = server.asks(path, &format!("{handshake}Origin: {origin}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

/// A Chromium without a window, asked by its DevTools protocol, which is JSON in the messages of a WebSocket.
struct Browser {
    child: Child,
    folder: PathBuf,
    devtools: Guest,
    asked: Cell<u64>,
}

impl Browser {
    /// Starts a browser. None: there is no Chromium.
    fn start() -> Option<Browser> {
        let folder = std::env::temp_dir().join(format!("sockdrawer-web-chat-{}-browser", std::process::id()));
        let options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "about:blank"];
        let mut command = Command::new("chromium");
        command.args(options).arg(format!("--user-data-dir={}", folder.display()));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok()?;
        let mut told = BufReader::new(child.stderr.take().expect("it was asked for")).lines().map_while(Result::ok);
        let line = told.find(|line| line.starts_with("DevTools listening on ")).expect("it says where");
        // Whatever else it says is not kept, and does not hold it up.
        std::thread::spawn(move || told.for_each(drop));
        let url = line.trim_start_matches("DevTools listening on ");
        let address = url.trim_start_matches("ws://").split('/').next().expect("a host");
        Some(Browser { child, folder, devtools: Guest::at(address, url, |client| client), asked: Cell::new(0) })
    }

    /// Asks for something, of a page or of the browser itself.
    fn ask(&self, page: Option<&str>, method: &str, parameters: &Value) -> Value {
        self.asked.set(self.asked.get() + 1);
        let mut question = json!({"id": self.asked.get(), "method": method, "params": parameters});
        if let Some(page) = page {
            question["sessionId"] = page.into();
        }
        self.devtools.says(&question.to_string());
        loop {
            let heard = self.devtools.heard.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no answer to {question}"));
            let heard: Value = serde_json::from_str(&heard).unwrap_or_else(|_| panic!("{heard}, and no answer to {question}"));
            if heard["id"] == self.asked.get() {
                return heard["result"].clone();
            }
        }
    }

    fn opens(&self, url: &str) -> Page<'_> {
        let target = self.ask(None, "Target.createTarget", &json!({"url": "about:blank"}))["targetId"].clone();
        let session = self.ask(None, "Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        let session = session["sessionId"].as_str().expect("a session").to_owned();
        // Answered when the page has begun: a script before that is lost with the blank one.
        self.ask(Some(&session), "Page.navigate", &json!({"url": url}));
        Page { browser: self, session }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Page<'a> {
    browser: &'a Browser,
    session: String,
}

impl Page<'_> {
    fn runs(&self, script: &str) -> Value {
        let parameters = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        self.browser.ask(Some(&self.session), "Runtime.evaluate", &parameters)
    }

    /// Waits until the page shows this text.
    fn shows(&self, text: &str) {
        let done = self.runs(&format!(
            "new Promise(done => {{
                const look = () => document.body && document.body.innerText.includes({}) && done(true);
                new MutationObserver(look).observe(document, {{ subtree: true, childList: true, characterData: true }});
                look();
            }})",
            json!(text)
        ));
        assert_eq!(done["result"]["value"], true, "{text}: {done}");
    }

    fn says(&self, text: &str) {
        self.runs(&format!(
            "document.getElementById('text').value = {}; document.getElementById('say').requestSubmit()",
            json!(text)
        ));
    }
}

#[test]
fn two_pages_of_a_browser_go_on_under_a_new_build() {
    let Some(browser) = Browser::start() else { return eprintln!("skipped: there is no chromium (apt-get install chromium)") };
    let server = Server::start("browser");
    let [ada, bob] = ["ada", "bob"].map(|name| browser.opens(&format!("http://{}/?name={name}", server.address)));
    ada.shows("connected as ada");
    bob.shows("connected as bob");
    for number in 0..3 {
        ada.says(&format!("hello {number}"));
        bob.shows(&format!("ada: hello {number}"));
        server.upgrade();
        bob.says(&format!("still here {number}"));
        ada.shows(&format!("bob: still here {number}"));
    }
    ada.shows("connected as ada");
    drop(server);
    bob.shows("closed (1001), connecting again");
}
