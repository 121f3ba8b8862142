//! Lines that come too fast, that are not read, and that cannot be written.

use super::*;
use std::sync::mpsc;

const LONG: Duration = Duration::from_secs(20);

/// Takes a piece for each word that it may.
struct Slow {
    may: mpsc::Receiver<()>,
    written: mpsc::Sender<Vec<u8>>,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // When the test is over, nothing is in the way.
        let _ = self.may.recv();
        let _ = self.written.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn entry(number: u64, event: &str, text: &str) -> Entry {
    let at = UNIX_EPOCH + Duration::from_millis(1_500);
    let (pool, event, text) = (Some("web".to_owned()), event.to_owned(), text.to_owned());
    Entry { number, at, pool, event, data: Value::Null, text, is_record: false }
}

fn log(form: Form) -> (Log, mpsc::Sender<()>, mpsc::Receiver<Vec<u8>>) {
    let ((go, may), (written, got)) = (mpsc::channel(), mpsc::channel());
    (Log::start(Slow { may, written }, form).expect("a thread"), go, got)
}

fn text(got: &mpsc::Receiver<Vec<u8>>) -> String {
    String::from_utf8(got.try_iter().flatten().collect()).expect("text")
}

#[test]
fn what_does_not_fit_is_dropped_and_counted_and_the_rest_comes_in_order() {
    let (log, go, got) = log(Form::Plain);
    let told = 3 * MAX_LINES;
    // Each of a kind of its own.
    (0..told).for_each(|number| log.tell(&entry(0, &format!("Kind{number}"), &number.to_string())));
    log.flush(Duration::ZERO);
    drop(go);
    log.flush(LONG);
    log.tell(&entry(0, "After", "after"));
    log.flush(LONG);
    let all = text(&got);
    let lines: Vec<&str> = all.lines().collect();
    let [numbers @ .., dropped, "after"] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(numbers.iter().enumerate().all(|(at, line)| *line == at.to_string()), "{numbers:?}");
    assert!(numbers.len() + 2 >= MAX_LINES, "{}", numbers.len());
    assert_eq!(*dropped, format!("warning: {} lines were dropped: standard error was not read", told - numbers.len()));
    assert_eq!(log.left_out(), ((told - numbers.len()) as u64, 0));
}

#[test]
fn ten_lines_of_a_kind_are_written_and_then_how_many_more() {
    for (form, last) in [
        (Form::Text { with_time: false }, "web: 990 more events Panicked within a second are left out"),
        (Form::Json, r#""event":"Suppressed""#),
    ] {
        let (log, go, got) = log(form);
        drop(go);
        (0..1_000).for_each(|number| log.tell(&entry(number, "Panicked", "a panic")));
        log.tell(&entry(1_000, "Other", "another kind"));
        // Without another entry, after the second.
        let mut all = String::new();
        while !all.contains("990 more") {
            all += &String::from_utf8(got.recv_timeout(LONG).expect("a line")).expect("text");
        }
        assert_eq!(all.matches("a panic").count(), 10, "{all}");
        assert!(all.contains("another kind") && all.lines().last().is_some_and(|line| line.contains(last)), "{all}");
        assert_eq!(log.left_out(), (0, 990));
        log.tell(&entry(1_001, "Panicked", "a panic"));
        log.flush(LONG);
        assert!(text(&got).contains("a panic"), "the next second begins");
    }
}

#[test]
fn each_form_has_its_lines() {
    let entry = entry(7, "Reported", "one\ntwo\u{1b}[2J");
    assert_eq!(entry.line(Form::Plain), r"one\ntwo\u{1b}[2J");
    assert_eq!(entry.line(Form::Text { with_time: false }), r"web: one\ntwo\u{1b}[2J");
    assert_eq!(entry.line(Form::Text { with_time: true }), r"1970-01-01T00:00:01.500Z web: one\ntwo\u{1b}[2J");
    let json: Value = serde_json::from_str(&entry.line(Form::Json)).expect("JSON");
    let (pid, text) = (std::process::id(), "one\ntwo\u{1b}[2J");
    let expected = json!({"pid": pid, "number": 7, "at": 1.5, "level": "info", "pool": "web", "event": "Reported", "data": null, "text": text});
    assert_eq!(json, expected);
}

/// A disk with room for so many bytes.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.lock().expect("no panic");
        let fits = bytes.len().min(disk.0);
        if fits == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.0 -= fits;
        disk.1.extend(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_that_a_full_disk_lost_are_told_when_there_is_room_again() {
    let disk = Disk::default();
    let log = Log::start(disk.clone(), Form::Text { with_time: false }).expect("a thread");
    disk.0.lock().expect("no panic").0 = 15;
    for line in ["a line", "torn", "lost"] {
        log.tell(&entry(0, line, line));
        log.flush(LONG);
    }
    assert_eq!(log.left_out(), (2, 0));
    disk.0.lock().expect("no panic").0 = 1_000;
    log.tell(&entry(0, "Kind", "a line"));
    log.flush(LONG);
    let all = String::from_utf8(disk.0.lock().expect("no panic").1.clone()).expect("text");
    let lost = "warning: 2 lines were lost: standard error could not be written: no storage space";
    assert_eq!(all.lines().collect::<Vec<_>>(), ["web: a line", "web", "web: a line", lost]);
}
