//! Protocol buffers, byte by byte: the few shapes that these messages are made of.
//!
//! Reading borrows from the message and allocates nothing; whatever the bytes are, it ends with a value or an error.
//! Sizes are not limited here: whoever has the bytes has limited them.

/// The bytes are not what the schema says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes: no field of these messages.
    Fixed,
}

impl<'a> Field<'a> {
    pub(crate) fn number(self) -> Result<u64, Malformed> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(Malformed("a field that should be a number is not")),
        }
    }

    pub(crate) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed("a field that should have a length has none")),
        }
    }

    pub(crate) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text is not UTF-8"))
    }
}

/// Goes through the fields of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

/// Groups, which nobody has used for long, may be in one another so deep.
const DEEPEST: u32 = 32;

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The next field and its number.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Field<'a>)>, Malformed> {
        while !self.0.is_empty() {
            let tag = self.tag()?;
            match tag & 7 {
                3 => self.skip_group(tag >> 3, DEEPEST)?,
                4 => return Err(Malformed("a group ends that did not begin")),
                kind => return Ok(Some((tag >> 3, self.value(kind)?))),
            }
        }
        Ok(None)
    }

    #[inline]
    fn tag(&mut self) -> Result<u32, Malformed> {
        let tag = u32::try_from(self.varint()?).map_err(|_| Malformed("a field's number is too large"))?;
        if tag >> 3 == 0 { Err(Malformed("a field has the number 0")) } else { Ok(tag) }
    }

    #[inline]
    fn value(&mut self, kind: u32) -> Result<Field<'a>, Malformed> {
        match kind {
            0 => self.varint().map(Field::Number),
            1 => self.take(8).map(|_| Field::Fixed),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| ENDS_EARLY)?;
                self.take(length).map(Field::Bytes)
            }
            5 => self.take(4).map(|_| Field::Fixed),
            _ => Err(Malformed("a field is of an unknown kind")),
        }
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ENDS_EARLY)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        // Nearly all are of one byte.
        if let [byte @ ..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok(u64::from(*byte));
        }
        let mut value = 0;
        for at in 0..10 {
            let byte = *self.0.get(at).ok_or(ENDS_EARLY)?;
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                if at == 9 && byte > 1 {
                    break;
                }
                self.0 = self.0.get(at + 1..).unwrap_or(&[]);
                return Ok(value);
            }
        }
        Err(Malformed("a number is too large"))
    }

    fn skip_group(&mut self, number: u32, deepest: u32) -> Result<(), Malformed> {
        let deeper = deepest.checked_sub(1).ok_or(Malformed("groups are too deep in one another"))?;
        loop {
            let tag = self.tag()?;
            match tag & 7 {
                3 => self.skip_group(tag >> 3, deeper)?,
                4 if tag >> 3 == number => return Ok(()),
                4 => return Err(Malformed("a group ends that did not begin")),
                kind => {
                    self.value(kind)?;
                }
            }
        }
    }
}

const ENDS_EARLY: Malformed = Malformed("it ends in the middle of a field");

/// How many bytes a number takes.
#[inline]
pub(crate) const fn varint_length(value: u64) -> usize {
    (((value | 1).ilog2() + 7) / 7) as usize
}

#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes a field of a number takes. All fields here have numbers below 16, so their tags are of one byte. Zero
/// is what an absent field means.
#[inline]
pub(crate) const fn number_length(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + varint_length(value) }
}

#[inline]
pub(crate) fn put_number(out: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        out.push(field << 3);
        put_varint(out, value);
    }
}

/// How many bytes a field takes that has a length of its own.
#[inline]
pub(crate) const fn sized_length(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

/// Begins a field of `length` bytes.
#[inline]
pub(crate) fn put_head(out: &mut Vec<u8>, field: u8, length: usize) {
    out.push(field << 3 | 2);
    put_varint(out, length as u64);
}

/// A field of text or bytes; empty ones are left out.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_head(out, field, bytes.len());
        out.extend_from_slice(bytes);
    }
}

/// How many bytes [`put_bytes`] takes.
#[inline]
pub(crate) const fn bytes_length(bytes: &[u8]) -> usize {
    if bytes.is_empty() { 0 } else { sized_length(bytes.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_foretold_and_come_back() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_length(value), "{value}");
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.0.is_empty());
        }
    }

    #[test]
    fn groups_are_skipped_and_nonsense_is_an_error() {
        // Field 1 as a group with a number and another group in it, then field 2 = 5.
        let mut reader = Reader::new(&[0x0b, 0x18, 1, 0x13, 0x14, 0x0c, 0x10, 5]);
        assert!(matches!(reader.next(), Ok(Some((2, Field::Number(5))))));
        assert!(matches!(reader.next(), Ok(None)));
        for nonsense in [
            &[0x0b][..],
            &[0x0c],
            &[0x0b, 0x14],
            &[0x00],
            &[0x08],
            &[0x0a, 5, 1],
            &[0x0e, 1],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0x0b; 40],
        ] {
            assert!(Reader::new(nonsense).next().is_err(), "{nonsense:?}");
        }
    }
}
