//! Requests: read whole, within bounds.

use super::Answer;
use sockdrawer::Input;

/// Maximum length of a request's head, in bytes.
pub(super) const MAX_HEAD: usize = 8 * 1024;
/// Maximum number of fields of a request's head.
const MAX_FIELDS: usize = 64;

/// A request with its whole body.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `GET`, `PUT` and others, as sent; `GET` for `HEAD`, whose answer is that of `GET` without its body.
    pub method: String,
    /// The path, with `%XX` decoded.
    pub path: String,
    /// The parameters behind `?`, decoded, in order. One without `=` has an empty value.
    pub query: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    fields: Vec<(String, String)>,
    pub(super) closes: bool,
    /// Only the head of the answer is asked for.
    pub(super) wants_head: bool,
}

impl Request {
    /// Takes a request without a body from the input; None, and nothing is taken, while it is not whole. For protocols that begin as HTTP and become
    /// another one; [`Web`](super::Web) serves HTTP. A request of HTTP/1.0 has no field `Upgrade`, which is ignored there.
    ///
    /// # Errors
    /// The answer to a request that is malformed or too long.
    pub fn read(input: &mut Input<'_>) -> Result<Option<Request>, Answer> {
        match parse(input, 0) {
            ParsedRequest::Whole(request) => Ok(Some(request)),
            ParsedRequest::Part { .. } => Ok(None),
            ParsedRequest::Refused(status, why) => Err(Answer::error(status, why)),
        }
    }

    /// Takes the head of a server's answer from the input: its status, and a request that has its fields alone. None, and nothing is taken, while it is
    /// not whole.
    ///
    /// # Errors
    /// Why the input is no such head, in a line.
    pub fn read_answer(input: &mut Input<'_>) -> Result<Option<(u16, Request)>, String> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut head = httparse::Response::new(&mut fields);
        match head.parse(input.bytes()) {
            Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => {
                let (status, fields) = (head.code.unwrap_or_default(), owned(head.headers));
                input.take(length);
                Ok(Some((status, Request { fields, ..Request::default() })))
            }
            Ok(httparse::Status::Partial) if input.bytes().len() < MAX_HEAD => Ok(None),
            Ok(_) => Err("the head of the answer has more than 8192 bytes".to_owned()),
            Err(error) => Err(format!("not an answer of HTTP/1.1: {error}")),
        }
    }

    /// Returns the values of all fields with this name, which is compared without case, in their order.
    pub fn fields(&self, name: &str) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Returns whether the method was `HEAD`: the answer is sent without its body.
    pub fn wants_head(&self) -> bool {
        self.wants_head
    }

    /// Returns the value of the first field with this name, which is compared without case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields(name).next()
    }

    /// Returns the value of the first parameter with this name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// Content of the input: a request, a part of one, or none.
pub(super) enum ParsedRequest {
    /// A request, taken from the input.
    Whole(Request),
    /// Nothing was taken.
    Part {
        /// The client waits for leave to send the body.
        expects_leave: bool,
    },
    /// A status and a reason.
    Refused(u16, String),
}

/// Takes a request from the input if it is whole.
pub(super) fn parse(input: &mut Input<'_>, max_body: usize) -> ParsedRequest {
    let refused = |status, why: &str| ParsedRequest::Refused(status, why.to_owned());
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(input.bytes()) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Partial) if input.bytes().len() < MAX_HEAD => return ParsedRequest::Part { expects_leave: false },
        Ok(_) => return refused(431, "the head of the request has more than 8192 bytes: send fewer or shorter fields"),
        Err(httparse::Error::TooManyHeaders) => return refused(431, "the request has more than 64 fields: send fewer"),
        Err(error) => return ParsedRequest::Refused(400, format!("not a request of HTTP/1.1: {error}")),
    };
    let mut request = Request { method: head.method.unwrap_or_default().to_owned(), ..Request::default() };
    request.fields = owned(head.headers);
    let is_old = head.version == Some(0);
    if is_old {
        // Such a client understands no other protocol, and a proxy may have passed the field on unseen: RFC 9110, 7.8.
        request.fields.retain(|(name, _)| !name.eq_ignore_ascii_case("Upgrade"));
    }
    let is = |name: &str, value: &str| request.field(name).is_some_and(|found| found.eq_ignore_ascii_case(value));
    let closes = is("Connection", "close") || (is_old && !is("Connection", "keep-alive"));
    let expects_leave = is("Expect", "100-continue");
    request.closes = closes;
    if request.method == "HEAD" {
        request.wants_head = true;
        request.method = "GET".to_owned();
    }
    if request.field("Transfer-Encoding").is_some() {
        return refused(411, "a body in chunks is not understood: send Content-Length");
    }
    let lengths: Vec<&str> = request.fields("Content-Length").collect();
    let body = match lengths.as_slice() {
        [] => 0,
        [one] if !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_digit()) => one.parse().unwrap_or(usize::MAX),
        _ => return refused(400, "Content-Length is no number: send one"),
    };
    if body > max_body {
        return ParsedRequest::Refused(413, format!("the body has {body} bytes, {max_body} are taken: send less"));
    }
    if input.bytes().len() - length < body {
        return ParsedRequest::Part { expects_leave };
    }
    let Some((path, query)) = target(head.path.unwrap_or_default()) else {
        return refused(400, "the target is no path: write such as /status?pool=web, with %XX for other bytes than letters");
    };
    (request.path, request.query) = (path, query);
    request.body = input.bytes()[length..length + body].to_vec();
    input.take(length + body);
    ParsedRequest::Whole(request)
}

fn owned(fields: &[httparse::Header<'_>]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    fields.iter().map(|field| (field.name.to_owned(), text(field.value))).collect()
}

/// Returns the path and the parameters of a target. None: it is neither a path nor a URL with one.
fn target(text: &str) -> Option<(String, Vec<(String, String)>)> {
    let path = match text.split_once("://") {
        Some((_, rest)) if !text.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => text,
    };
    if !path.starts_with('/') {
        return None;
    }
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parameter = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Some((decoded(&name.replace('+', " "))?, decoded(&value.replace('+', " "))?))
    };
    let query = query.split('&').filter(|part| !part.is_empty()).map(parameter).collect::<Option<_>>()?;
    Some((decoded(path)?, query))
}

/// Returns the text with `%XX` replaced by bytes.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}
