//! gRPC's framing of one message: a flag, the length, the bytes.

use bytes::{BufMut, Bytes, BytesMut};

/// The flag and the length.
const PREFIX_BYTES: usize = 5;

/// One uncompressed message as a gRPC body; `None` when it is longer than a frame can say.
pub(crate) fn wrap(message: &[u8]) -> Option<Bytes> {
    let length = u32::try_from(message.len()).ok()?;
    let mut body = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    body.put_u8(0);
    body.put_u32(length);
    body.put_slice(message);
    Some(body.freeze())
}

/// The one uncompressed message of a gRPC body; `None` when it is anything else.
pub(crate) fn unwrap(mut body: Bytes) -> Option<Bytes> {
    let prefix = body.split_to_checked(PREFIX_BYTES)?;
    let length = usize::try_from(u32::from_be_bytes(prefix[1..].try_into().ok()?)).ok()?;
    (prefix[0] == 0 && body.len() == length).then_some(body)
}

trait SplitChecked: Sized {
    fn split_to_checked(&mut self, at: usize) -> Option<Self>;
}

impl SplitChecked for Bytes {
    fn split_to_checked(&mut self, at: usize) -> Option<Self> {
        (self.len() >= at).then(|| self.split_to(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_wrapped_and_unwrapped() {
        let body = wrap(b"abc").unwrap();
        assert_eq!(&body[..], b"\0\0\0\0\x03abc");
        assert_eq!(unwrap(body).unwrap(), "abc");
        assert_eq!(unwrap(Bytes::from_static(b"\0\0\0\0")), None);
        assert_eq!(unwrap(Bytes::from_static(b"\0\0\0\0\x02a")), None);
        assert_eq!(unwrap(Bytes::from_static(b"\x01\0\0\0\x01a")), None, "compressed");
        assert_eq!(unwrap(Bytes::from_static(b"\0\0\0\0\x01ab")), None, "two messages");
    }
}
