// SPDX-License-Identifier: GPL-2.0-or-later
//! The output of `ffmpeg -progress`: lines `key=value`; `progress=continue` or `progress=end` ends
//! a block of them.

use super::account::Counts;

/// A longer line is no line of a progress.
const MOST_LINE_BYTES: usize = 1024;

/// Takes bytes as they come.
#[derive(Debug, Default)]
pub struct Progress {
    line: Vec<u8>,
    /// The numbers known so far.
    known: Known,
    newest: Option<Counts>,
    has_ended: bool,
    /// Desired frames per second.
    rate: f64,
}

#[derive(Debug, Default)]
struct Known {
    frames: Option<u64>,
    dropped: u64,
    doubled: u64,
    bytes: u64,
    time_us: u64,
}

impl Progress {
    /// `rate` makes frames of the time where there are no pictures.
    pub fn new(rate: f64) -> Progress {
        Progress {
            rate,
            ..Progress::default()
        }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.end_line();
            } else if self.line.len() <= MOST_LINE_BYTES {
                self.line.push(byte);
            }
        }
    }

    /// The newest whole block since the last call.
    pub fn take(&mut self) -> Option<Counts> {
        self.newest.take()
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = std::str::from_utf8(&line).unwrap_or_default();
        let Some((key, value)) = text.split_once('=') else {
            return;
        };
        // `N/A`, and a time before the beginning, are no numbers: the last one holds.
        let number = value.trim().parse().ok();
        let latest = |of: &mut u64| *of = number.unwrap_or(*of);
        let known = &mut self.known;
        match key {
            "frame" => known.frames = number.or(known.frames),
            "drop_frames" => latest(&mut known.dropped),
            "dup_frames" => latest(&mut known.doubled),
            "total_size" => latest(&mut known.bytes),
            "out_time_us" => latest(&mut known.time_us),
            "progress" => {
                self.newest = Some(self.counts());
                self.has_ended |= value.trim() == "end";
            }
            _ => {}
        }
    }

    fn counts(&self) -> Counts {
        let of_time = self.known.time_us as f64 / 1e6 * self.rate;
        Counts {
            frames: self.known.frames.unwrap_or(of_time as u64),
            // In place of a frame that did not come in time, ffmpeg writes the last one again.
            late: self.known.doubled,
            lost: self.known.dropped,
            bytes: self.known.bytes,
            rate: None,
            round_trip: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VIDEO: &[u8] = b"frame=47\nfps=22.15\nstream_0_0_q=2.0\nbitrate= 600.1kbits/s\n\
        total_size=4800\nout_time_us=1880816\nout_time_ms=1880816\nout_time=00:00:01.880816\n\
        dup_frames=2\ndrop_frames=1\nspeed=0.886x\nprogress=continue\n";
    const AUDIO: &[u8] = b"bitrate=N/A\ntotal_size=N/A\nout_time_us=2000000\nprogress=end\n";

    #[test]
    fn a_block_is_read_when_it_is_whole() {
        let mut progress = Progress::new(25.0);
        let (first, rest) = VIDEO.split_at(40);
        progress.add(first);
        assert_eq!(progress.take(), None);
        progress.add(rest);
        let expected = Counts {
            frames: 47,
            late: 2,
            lost: 1,
            bytes: 4800,
            rate: None,
            round_trip: None,
        };
        assert_eq!(progress.take(), Some(expected));
        assert_eq!((progress.take(), progress.has_ended()), (None, false));
    }

    #[test]
    fn without_pictures_the_time_counts() {
        let mut progress = Progress::new(50.0);
        progress.add(AUDIO);
        assert_eq!(progress.take().map(|counts| counts.frames), Some(100));
        assert!(progress.has_ended());
    }

    #[test]
    fn a_number_that_is_missing_is_the_last_one() {
        let mut progress = Progress::new(25.0);
        progress.add(VIDEO);
        let before = progress.take();
        progress.add(b"frame=48\ntotal_size=N/A\nprogress=end\n");
        let expected = before.map(|counts| Counts {
            frames: 48,
            ..counts
        });
        assert_eq!(progress.take(), expected);
    }

    #[test]
    fn a_time_before_the_beginning_is_no_frame() {
        let mut progress = Progress::new(50.0);
        progress.add(b"out_time_us=-21333\nprogress=continue\n");
        assert_eq!(progress.take(), Some(Counts::default()));
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut progress = Progress::new(25.0);
        for _ in 0..1000 {
            progress.add(&[b'x'; 1000]);
        }
        assert!(progress.line.len() <= MOST_LINE_BYTES + 1);
        progress.add(b"\n");
        progress.add(VIDEO);
        assert!(progress.take().is_some());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes: Vec<u8>, lines in "((frame|total_size|out_time_us|progress)=[-0-9a-z]{0,25}\n){0,20}", rate: f64) {
            let mut progress = Progress::new(rate);
            progress.add(&bytes);
            progress.add(lines.as_bytes());
            let _ = progress.take();
        }
    }
}
