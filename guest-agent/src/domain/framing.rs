// SPDX-License-Identifier: GPL-2.0-or-later
//! Cuts a byte stream into lines of a bounded length. A longer line is dropped
//! as it arrives, up to its newline, and reported once; the limit bounds
//! memory, too.

pub const MAX_LINE_BYTES: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line without its newline; never empty.
    Line(Vec<u8>),
    /// A line longer than the limit ended here.
    TooLong,
}

pub struct LineFramer {
    limit_bytes: usize,
    partial: Vec<u8>,
    discarding: bool,
}

impl LineFramer {
    pub fn new(limit_bytes: usize) -> LineFramer {
        LineFramer {
            limit_bytes,
            partial: Vec::new(),
            discarding: false,
        }
    }

    /// The frames that `bytes` completes. Empty lines are skipped.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.collect(&bytes[..end]);
            bytes = &bytes[end + 1..];
            if std::mem::take(&mut self.discarding) {
                frames.push(Frame::TooLong);
            } else if !self.partial.iter().all(u8::is_ascii_whitespace) {
                frames.push(Frame::Line(std::mem::take(&mut self.partial)));
            }
            self.partial.clear();
        }
        self.collect(bytes);
        frames
    }

    /// Forgets a cut line: the peer went away in the middle of it.
    pub fn reset(&mut self) {
        *self = LineFramer::new(self.limit_bytes);
    }

    fn collect(&mut self, bytes: &[u8]) {
        // The newline counts towards the limit.
        if self.discarding || self.partial.len() + bytes.len() >= self.limit_bytes {
            self.discarding = true;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(text: &str) -> Frame {
        Frame::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_come_out_as_they_complete() {
        let mut framer = LineFramer::new(16);
        assert_eq!(framer.feed(b"ab"), vec![]);
        assert_eq!(framer.feed(b"c\n\n \nde\nf"), vec![line("abc"), line("de")]);
        assert_eq!(framer.feed(b"\n"), vec![line("f")]);
    }

    #[test]
    fn the_limit_counts_the_newline() {
        let mut framer = LineFramer::new(4);
        assert_eq!(framer.feed(b"abc\n"), vec![line("abc")]);
        assert_eq!(framer.feed(b"abcd\nxy\n"), vec![Frame::TooLong, line("xy")]);
    }

    #[test]
    fn a_long_line_takes_no_memory() {
        let mut framer = LineFramer::new(64);
        for _ in 0..1000 {
            assert_eq!(framer.feed(&[b'x'; 100]), vec![]);
            assert!(framer.partial.capacity() <= 64);
        }
        assert_eq!(framer.feed(b"\nok\n"), vec![Frame::TooLong, line("ok")]);
    }

    #[test]
    fn reset_forgets_the_cut_line() {
        let mut framer = LineFramer::new(64);
        framer.feed(b"half a li");
        framer.reset();
        assert_eq!(framer.feed(b"whole\n"), vec![line("whole")]);
    }

    proptest! {
        /// However the stream is cut into reads, the frames are the same.
        #[test]
        fn prop_cuts_do_not_matter(
            stream in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')], 0..400),
            cuts in prop::collection::vec(1usize..40, 1..40),
        ) {
            let whole = LineFramer::new(24).feed(&stream);
            let mut framer = LineFramer::new(24);
            let mut pieces = Vec::new();
            let (mut rest, mut turn) = (&stream[..], 0);
            while !rest.is_empty() {
                let cut = cuts[turn % cuts.len()].min(rest.len());
                pieces.extend(framer.feed(&rest[..cut]));
                rest = &rest[cut..];
                turn += 1;
            }
            prop_assert_eq!(whole, pieces);
        }

        /// Against a plain model: split at newlines, judge each by its length.
        #[test]
        fn prop_agrees_with_splitting(stream in "[a-c\n]{0,200}") {
            let complete = stream.rfind('\n').map_or("", |end| &stream[..end]);
            let expected: Vec<Frame> = complete
                .split('\n')
                .filter(|text| !text.is_empty())
                .map(|text| if text.len() >= 6 { Frame::TooLong } else { line(text) })
                .collect();
            prop_assert_eq!(LineFramer::new(6).feed(stream.as_bytes()), expected);
        }
    }
}
