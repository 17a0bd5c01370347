// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads the progress of an ffmpeg from a file that it writes, or from a pipe.

use crate::adapters::subscriber::ready;
use crate::domain::ffmpeg::Progress;
use crate::services::sources::{Look, Seen};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A look takes no more; the rest of it waits.
const MOST_BYTES_A_LOOK: usize = 1 << 20;

pub struct Ffmpeg {
    /// `-`: the standard input.
    path: PathBuf,
    rate: f64,
    input: Option<Input>,
    /// Lines that were in the file before are of another run.
    was_missing: bool,
}

struct Input {
    file: File,
    /// Of a file that grows. A pipe ends with its writers.
    is_regular: bool,
    /// Whether the end of a pipe is the end: not before its first writer has come.
    has_begun: bool,
    progress: Progress,
}

impl Ffmpeg {
    /// `rate`: desired frames per second.
    pub fn new(path: PathBuf, rate: f64) -> Ffmpeg {
        Ffmpeg {
            path,
            rate,
            input: None,
            was_missing: false,
        }
    }

    fn open(&self) -> io::Result<Input> {
        let is_standard = self.path == Path::new("-");
        let file = if is_standard {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            // The opening of a named pipe would wait for its writer.
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_NONBLOCK);
            options.open(&self.path)?
        };
        let metadata = file.metadata()?;
        let mut input = Input {
            file,
            is_regular: metadata.is_file(),
            has_begun: !metadata.file_type().is_fifo() || is_standard,
            progress: Progress::new(self.rate),
        };
        if input.is_regular && !self.was_missing && !is_standard {
            input.file.seek(SeekFrom::End(0))?;
        }
        Ok(input)
    }

    /// Whether the file was begun anew, by another ffmpeg.
    fn is_replaced(&self, input: &mut Input) -> io::Result<bool> {
        if !input.is_regular || self.path == Path::new("-") {
            return Ok(false);
        }
        let of = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        let named = fs::metadata(&self.path)?;
        let is_shorter = named.len() < input.file.stream_position()?;
        Ok(is_shorter || of(&named) != of(&input.file.metadata()?))
    }

    fn read(&mut self) -> io::Result<Seen> {
        let mut input = match self.input.take() {
            Some(input) => input,
            None => self.open()?,
        };
        self.was_missing = true;
        if self.is_replaced(&mut input)? {
            input = self.open()?;
        }
        let is_over = input.read()?;
        let seen = match input.progress.take() {
            Some(counts) => Seen::Counts(counts),
            None if is_over || input.progress.has_ended() => Seen::End,
            None => Seen::Nothing,
        };
        self.input = Some(input);
        Ok(seen)
    }
}

impl Input {
    /// All that is there; whether no more will come.
    fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 8192];
        for _ in 0..MOST_BYTES_A_LOOK / bytes.len() {
            if !ready(&[self.file.as_fd()])?.contains(&true) {
                return Ok(false);
            }
            match self.file.read(&mut bytes) {
                Ok(0) => return Ok(!self.is_regular && self.has_begun),
                Ok(length) => {
                    self.has_begun = true;
                    self.progress.add(&bytes[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl Look for Ffmpeg {
    fn look(&mut self) -> Result<Seen, String> {
        self.read().map_err(|error| {
            self.was_missing = true;
            let path = self.path.display();
            format!("cannot read {path} ({error}): see that ffmpeg runs with -progress {path}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const MORE: &[u8] = b"drop_frames=1\nprogress=continue\n";

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("sluice-progress-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }

        fn file(&self) -> PathBuf {
            self.0.join("progress")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn frames(seen: Result<Seen, String>) -> Option<u64> {
        match seen.unwrap() {
            Seen::Counts(counts) => Some(counts.frames),
            _ => None,
        }
    }

    fn append(path: &Path, frame: u64, rest: &[u8]) {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(path).unwrap();
        writeln!(file, "frame={frame}").unwrap();
        file.write_all(rest).unwrap();
    }

    #[test]
    fn a_file_is_followed_from_now_on() {
        let folder = Folder::new("file");
        let path = folder.file();
        append(&path, 99, b"progress=end\n");
        let mut ffmpeg = Ffmpeg::new(path.clone(), 25.0);
        assert_eq!(ffmpeg.look(), Ok(Seen::Nothing), "that is of another run");
        append(&path, 100, MORE);
        append(&path, 101, MORE);
        assert_eq!(frames(ffmpeg.look()), Some(101));
        assert_eq!(ffmpeg.look(), Ok(Seen::Nothing));
        // ffmpeg begins its file anew.
        fs::write(&path, "").unwrap();
        append(&path, 1, MORE);
        assert_eq!(frames(ffmpeg.look()), Some(1));
        fs::remove_file(&path).unwrap();
        append(&path, 2, b"progress=end\n");
        assert_eq!(frames(ffmpeg.look()), Some(2), "another file of the name");
        assert_eq!(ffmpeg.look(), Ok(Seen::End));
    }

    #[test]
    fn a_file_that_comes_later_is_read_from_its_beginning() {
        let folder = Folder::new("later");
        let path = folder.file();
        let mut ffmpeg = Ffmpeg::new(path.clone(), 25.0);
        let error = ffmpeg.look().unwrap_err();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        append(&path, 7, MORE);
        assert_eq!(frames(ffmpeg.look()), Some(7));
    }

    #[test]
    fn a_named_pipe_ends_with_its_writer() {
        let folder = Folder::new("pipe");
        let path = folder.file();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut ffmpeg = Ffmpeg::new(path.clone(), 25.0);
        assert_eq!(ffmpeg.look(), Ok(Seen::Nothing), "nobody writes yet");
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(ffmpeg.look(), Ok(Seen::Nothing));
        writer.write_all(b"frame=3\nprogress=con").unwrap();
        assert_eq!(ffmpeg.look(), Ok(Seen::Nothing));
        writer.write_all(b"tinue\n").unwrap();
        assert_eq!(frames(ffmpeg.look()), Some(3));
        drop(writer);
        assert_eq!(ffmpeg.look(), Ok(Seen::End));
    }

    #[test]
    fn a_folder_is_a_fault() {
        let folder = Folder::new("folder");
        let error = Ffmpeg::new(folder.0.clone(), 25.0).look().unwrap_err();
        assert!(error.contains("directory"), "{error}");
    }
}
