// SPDX-License-Identifier: GPL-2.0-or-later
//! One question to a server that closes the connection after its answer. Neither a slow nor a
//! talkative server costs more than a bounded time and a bounded memory.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub const MOST_ANSWER_BYTES: usize = 256 * 1024;

/// The whole answer. `within` holds for all of it.
pub fn ask(address: SocketAddr, question: &[u8], within: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + within;
    let mut stream = TcpStream::connect_timeout(&address, within)?;
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(question)?;
    let mut answer = Vec::new();
    let mut piece = [0; 8192];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(answer),
            Ok(length) => answer.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(too_slow()),
            Err(error) => return Err(error),
        }
        if answer.len() > MOST_ANSWER_BYTES {
            let text = format!("it answers with more than {MOST_ANSWER_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(too_slow())
    } else {
        Ok(left)
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no whole answer in time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const LONG: Duration = Duration::from_secs(60);

    /// A server for one connection.
    fn served(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(listener.accept().unwrap().0));
        address
    }

    #[test]
    fn an_answer_in_pieces_is_whole() {
        let address = served(|mut stream| {
            let mut question = [0; 5];
            stream.read_exact(&mut question).unwrap();
            stream.write_all(&question).unwrap();
            stream.write_all(b" yourself").unwrap();
        });
        assert_eq!(ask(address, b"hello", LONG).unwrap(), b"hello yourself");
    }

    #[test]
    fn an_endless_answer_is_cut() {
        let address = served(|mut stream| while stream.write_all(&[b'x'; 4096]).is_ok() {});
        let error = ask(address, b"", LONG).unwrap_err();
        assert!(error.to_string().contains("262144 bytes"), "{error}");
    }

    #[test]
    fn a_server_that_drips_is_left() {
        let address = served(|mut stream| {
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let error = ask(address, b"", Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_silent_server_is_left() {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let address = served(move |_stream| _ = is_done.recv());
        let error = ask(address, b"", Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        drop(done);
    }
}
