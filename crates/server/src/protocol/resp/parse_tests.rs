//! Commands from bytes, in whatever pieces they come.

use tollgate::core::mix;

use super::*;
use crate::fuzzing;

/// The commands of `bytes`, or the error that ends them, and how many bytes were used.
fn parse(bytes: &[u8]) -> (Vec<Vec<Vec<u8>>>, Result<usize, ProtocolError>) {
    let mut parser = Parser::new(true);
    let (mut commands, mut start) = (Vec::new(), 0);
    loop {
        match parser.next(&bytes[start..]) {
            Ok(Some(length)) => {
                commands.push(parser.command(&bytes[start..]).iter().map(<[u8]>::to_vec).collect());
                start += length;
            }
            Ok(None) => return (commands, Ok(start)),
            Err(error) => return (commands, Err(error)),
        }
    }
}

fn words(bytes: &[u8]) -> Vec<Vec<String>> {
    let (commands, end) = parse(bytes);
    assert_eq!(end, Ok(bytes.len()));
    let text = |argument: &Vec<u8>| String::from_utf8_lossy(argument).into_owned();
    commands.iter().map(|command| command.iter().map(text).collect()).collect()
}

#[track_caller]
fn ends(bytes: impl AsRef<[u8]>, error: ProtocolError) {
    assert_eq!(parse(bytes.as_ref()).1, Err(error));
}

#[test]
fn arrays_and_lines_may_follow_one_another() {
    let bytes =
        b"*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\nPING\r\n*0\r\n*-1\r\n\r\n  echo \"a b\"\t'c\\'d' e\"f\"\n*1\r\n$0\r\n\r\n";
    let expected: [&[&str]; 7] = [&["ECHO", "\r\n"], &["PING"], &[], &[], &[], &["echo", "a b", "c'd", "ef"], &[""]];
    assert_eq!(words(bytes), expected);
    assert_eq!(words(b"SET \"\\x41\\n\\q\\\"\" '\\n'\r\n"), [["SET", "A\nq\"", "\\n"]]);
}

#[test]
fn what_is_out_of_bounds_is_refused_as_soon_as_it_is_said() {
    ends("*1025\r\n", ProtocolError::ArgumentCount);
    ends("*1000000000\r\n", ProtocolError::ArgumentCount);
    ends("*99999999999999999999\r\n", ProtocolError::ArgumentCount);
    ends("*x\r\n", ProtocolError::ArgumentCount);
    ends("*\r\n", ProtocolError::ArgumentCount);
    ends("*1\rx", ProtocolError::ArgumentCount);
    ends("*0000000000000000000000000000", ProtocolError::HeaderTooLong);
    ends("*1\r\n$65537\r\n", ProtocolError::BulkLength);
    ends("*1\r\n$-1\r\n", ProtocolError::BulkLength);
    ends("*1\r\n$9223372036854775808\r\n", ProtocolError::BulkLength);
    ends("*1\r\n:1\r\n", ProtocolError::ExpectedBulk(b':'));
    ends("*1\r\n$4\r\nPINGxx", ProtocolError::BulkEnd);
    ends("a".repeat(MOST_LINE + 1), ProtocolError::LineTooLong);
    ends("\"a\n", ProtocolError::Quotes);
    ends("\"a\"b\n", ProtocolError::Quotes);
    ends("a ".repeat(1_025) + "\n", ProtocolError::ArgumentCount);
    let long = format!("$65536\r\n{}\r\n", "x".repeat(MOST_BULK));
    ends(format!("*20\r\n{}", long.repeat(20)), ProtocolError::CommandTooLong);
    assert_eq!(words(format!("*15\r\n{}", long.repeat(15)).as_bytes())[0].len(), 15);
}

#[test]
fn strangers_may_send_less() {
    let mut parser = Parser::new(false);
    assert_eq!(parser.next(b"*11\r\n"), Err(ProtocolError::ArgumentCountOfStranger));
    assert_eq!(Parser::new(false).next(b"*1\r\n$16385\r\n"), Err(ProtocolError::BulkLengthOfStranger));
    assert_eq!(Parser::new(false).next(b"*1\r\n$4\r\nPING\r\n"), Ok(Some(14)));
}

#[test]
fn nothing_is_set_aside_for_what_is_only_declared() {
    let mut parser = Parser::new(true);
    assert_eq!(parser.next(b"*1024\r\n$65536\r\n"), Ok(None));
    assert!(parser.spans.capacity() <= 8, "{}", parser.spans.capacity());
}

/// One million bytes in pieces of one: only what is new is looked at, or this would take hours.
#[test]
fn a_long_command_in_single_bytes_takes_time_in_proportion() {
    let bytes = format!("*15\r\n{}", format!("$65536\r\n{}\r\n", "x".repeat(MOST_BULK)).repeat(15));
    let line = format!("echo {}\n", "y".repeat(MOST_LINE - 6));
    let mut parser = Parser::new(true);
    for bytes in [bytes, line] {
        let bytes = bytes.as_bytes();
        let complete = (1..=bytes.len()).find(|read| parser.next(&bytes[..*read]).unwrap().is_some());
        assert_eq!(complete, Some(bytes.len()));
    }
}

fn random(draw: &mut impl FnMut() -> u64) -> Vec<u8> {
    const PARTS: [&[u8]; 16] = [
        b"*1\r\n",
        b"*2\r\n",
        b"$4\r\n",
        b"PING\r\n",
        b"$0\r\n\r\n",
        b"\r\n",
        b"\n",
        b"\"",
        b"'a b'",
        b"*",
        b"$",
        b"-1",
        b"12",
        b"echo hi\r\n",
        b"\\x4",
        b"*3\r\n$3\r\nfoo\r\n$1\r\nx\r\n$2\r\nyy\r\n",
    ];
    let mut bytes = vec![draw() as u8];
    for _ in 0..draw() % 24 {
        match draw() % 8 {
            0 => bytes.push(draw() as u8),
            _ => bytes.extend_from_slice(PARTS[(draw() % 16) as usize]),
        }
    }
    bytes
}

#[test]
fn any_bytes_in_any_pieces_are_the_same_commands() {
    let mut drawn = 0;
    let mut draw = || {
        drawn += 1;
        mix(drawn)
    };
    for number in 0..20_000 {
        let bytes = random(&mut draw);
        if let Err(difference) = fuzzing::resp(&bytes) {
            panic!("input {number}, {:?}: {difference}", String::from_utf8_lossy(&bytes));
        }
    }
}
