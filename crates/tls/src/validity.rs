//! The dates of a certificate: the one thing of it that rustls does not tell. Only the way to that field is read: RFC 5280, section 4.1.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns when a certificate, DER, begins to be valid, and the moment from which on it is not any more; None where that cannot be read.
pub(crate) fn validity(certificate: &[u8]) -> Option<Range<SystemTime>> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut fields, _) = element(certificate)? else { return None };
    if let (VERSION, _, rest) = element(fields)? {
        fields = rest;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (SEQUENCE, validity, _) = element(fields)? else { return None };
    let (kind, text, validity) = element(validity)?;
    let begins = time(kind, text)?;
    let (kind, text, _) = element(validity)?;
    Some(begins..time(kind, text)?)
}

/// Returns the first element of DER: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let ([tag, length], mut rest) = der.split_first_chunk()?;
    let length = match *length {
        short @ 0..=0x7f => usize::from(short),
        long @ 0x81..=0x84 => {
            let (bytes, after) = rest.split_at_checked(usize::from(long & 0x7f))?;
            rest = after;
            bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Reads a time: `YYMMDDhhmmssZ`, whose years are 1950 to 2049, or `YYYYMMDDhhmmssZ`.
fn time(kind: u8, text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match kind {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let mut parts = [0; 5];
    for (at, part) in parts.iter_mut().enumerate() {
        *part = rest.get(2 * at..2 * at + 2)?.parse::<u64>().ok()?;
    }
    let [month, day, hour, minute, second] = parts;
    if rest.len() != 10 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if year < 1970 {
        return Some(UNIX_EPOCH);
    }
    let days = days_before(year, month) + day - 1;
    UNIX_EPOCH.checked_add(Duration::from_secs(((days * 24 + hour) * 60 + minute) * 60 + second))
}

/// Days from 1970 to the first of a month.
fn days_before(year: u64, month: u64) -> u64 {
    // Years begin in March, so that the day that only some of them have is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn certificates_of_both_kinds_of_time_are_read_and_what_is_cut_off_is_not() {
        let key = KeyPair::generate().expect("a key");
        for (year, month, day, seconds) in [
            (2024_i32, 2_u8, 29_u8, 1_709_164_800_u64),
            (2030, 1, 1, 1_893_456_000),
            (2049, 12, 31, 2_524_521_600),
            (2100, 3, 1, 4_107_542_400),
        ] {
            let mut parameters = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
            parameters.not_before = date_time_ymd(2000, 1, 1);
            parameters.not_after = date_time_ymd(year, month, day);
            let certificate = parameters.self_signed(&key).expect("a certificate");
            let der = certificate.der();
            let [begins, ends] = [946_684_800, seconds].map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(validity(der), Some(begins..ends), "{year}-{month}-{day}");
            let before_it = (0..der.len()).filter(|length| validity(&der[..*length]).is_some()).count();
            assert_eq!(before_it, 0, "the outer length says that something is missing");
        }
        assert_eq!(validity(b""), None);
        assert_eq!(time(UTC_TIME, b"991301000000Z"), None);
        assert_eq!(time(GENERALIZED_TIME, b"2024010100000"), None);
    }
}
