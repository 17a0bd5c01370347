// SPDX-License-Identifier: GPL-2.0-or-later
//! VLC's HTTP interface: the question, and its statistics in the answer.

use super::account::Counts;
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

const DEFAULT_PORT: u16 = 8080;
const MOST_FRAMES_PER_SECOND: f64 = 1000.0;

/// Where the interface is. Names are not looked up: that could take any time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub socket: SocketAddr,
    url: String,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(url: &str) -> Result<Address, String> {
        let error = || {
            format!(
                "{url:?} is not http://ADDRESS:PORT with an IP address or localhost, and no \
                 password"
            )
        };
        let rest = url.strip_prefix("http://").ok_or_else(error)?;
        let place = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| error())?),
            _ => (place, DEFAULT_PORT),
        };
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let ip = match (host, bare) {
            ("localhost", _) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            (_, Some(bare)) => IpAddr::V6(bare.parse().map_err(|_| error())?),
            _ => IpAddr::V4(host.parse().map_err(|_| error())?),
        };
        Ok(Address {
            socket: SocketAddr::new(ip, port),
            url: format!("http://{place}"),
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.url)
    }
}

/// VLC has no user, only a password. After the answer it closes the connection.
pub fn question(address: &Address, password: &str) -> String {
    format!(
        "GET /requests/status.json HTTP/1.0\r\nHost: {}\r\nAuthorization: Basic {}\r\n\r\n",
        address.socket,
        base64(format!(":{password}").as_bytes())
    )
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |place: usize| u32::from(group.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            text.push(if place <= group.len() {
                char::from(ALPHABET[(bits >> (18 - 6 * place)) as usize & 63])
            } else {
                '='
            });
        }
    }
    text
}

/// Reads the whole answer. The error is one line for people.
pub fn answer(bytes: &[u8]) -> Result<Counts, String> {
    let end = bytes.windows(4).position(|at| at == b"\r\n\r\n");
    let status = std::str::from_utf8(bytes.get(..12).unwrap_or_default()).unwrap_or_default();
    let (Some(end), Some(status)) = (end, status.strip_prefix("HTTP/1.")) else {
        return Err("it does not speak HTTP".to_owned());
    };
    match status.get(2..).unwrap_or_default() {
        "200" => counts(&bytes[end + 4..]),
        "401" => Err(
            "it refuses the password: give that of its --http-password by --password-file or \
             SLUICE_VLC_PASSWORD"
                .to_owned(),
        ),
        code => Err(format!(
            "it answers {:?} to /requests/status.json: see that VLC runs there with --extraintf=http",
            code
        )),
    }
}

/// Pictures, or audio buffers where there are no pictures. While VLC does not play, no frame is
/// desired.
fn counts(json: &[u8]) -> Result<Counts, String> {
    let no_status = |why: String| format!("its answer is no status of a VLC ({why})");
    let status: Value =
        serde_json::from_slice(json).map_err(|error| no_status(error.to_string()))?;
    let state = status["state"].as_str();
    let state = state.ok_or_else(|| no_status("no \"state\"".to_owned()))?;
    let stats = &status["stats"];
    // A number beyond the range becomes its end.
    let count = |name: &str| stats[name].as_f64().unwrap_or(0.0) as u64;
    let pictures = count("displayedpictures");
    let film = frame_rate(&status);
    let has_pictures = film.is_some() || pictures > 0 || count("decodedvideo") > 0;
    let rate = if state == "playing" { film } else { Some(0.0) };
    Ok(Counts {
        frames: if has_pictures {
            pictures
        } else {
            count("playedabuffers")
        },
        // VLC 3 counts late pictures that it left out as lost ones.
        late: count("latepictures"),
        lost: count("lostpictures").saturating_add(count("lostabuffers")),
        bytes: count("demuxreadbytes"),
        rate,
        round_trip: None,
    })
}

/// Of the film, times the speed at which it is played. The film's is told in the words of VLC's
/// own language.
fn frame_rate(status: &Value) -> Option<f64> {
    let tracks = status["information"]["category"].as_object()?;
    let mut rates = tracks
        .values()
        .filter_map(|track| track["Frame_rate"].as_str());
    let film: f64 = rates.next()?.parse().ok()?;
    let rate = film * status["rate"].as_f64().unwrap_or(1.0);
    (0.0..=MOST_FRAMES_PER_SECOND)
        .contains(&rate)
        .then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn status() -> Value {
        json!({
            "state": "playing",
            "rate": 1,
            "information": {"chapter": 0, "category": {
                "meta": {"filename": "film.ts"},
                "Stream 0": {"Type": "Video", "Frame_rate": "25"},
            }},
            "stats": {
                "displayedpictures": 103, "lostpictures": 1, "lostabuffers": 2,
                "decodedvideo": 240, "playedabuffers": 227, "demuxreadbytes": 569_003,
                "demuxbitrate": 0.093_274_727_463_722,
            },
        })
    }

    fn read(status: &Value) -> Result<Counts, String> {
        answer(format!("HTTP/1.1 200 OK\r\nContent-type: text/plain\r\n\r\n{status}").as_bytes())
    }

    #[test]
    fn vlcs_statistics_are_read() {
        let expected = Counts {
            frames: 103,
            late: 0,
            lost: 3,
            bytes: 569_003,
            rate: Some(25.0),
            round_trip: None,
        };
        assert_eq!(read(&status()), Ok(expected));
    }

    #[test]
    fn a_film_may_be_played_faster() {
        let mut fast = status();
        fast["rate"] = json!(1.5);
        assert_eq!(read(&fast).unwrap().rate, Some(37.5));
        fast["rate"] = json!(1e300);
        assert_eq!(read(&fast).unwrap().rate, None);
    }

    #[test]
    fn a_paused_film_desires_no_frames() {
        let mut paused = status();
        paused["state"] = json!("paused");
        let found = read(&paused).unwrap();
        assert_eq!((found.rate, found.frames), (Some(0.0), 103));
        // VLC has no statistics, which it writes as an empty list.
        let stopped = json!({"state": "stopped", "stats": []});
        let nothing = Counts {
            rate: Some(0.0),
            ..Counts::default()
        };
        assert_eq!(read(&stopped), Ok(nothing));
    }

    #[test]
    fn a_film_has_pictures_before_the_first_is_shown() {
        let mut begins = status();
        begins["stats"] = json!({"playedabuffers": 9});
        let found = read(&begins).unwrap();
        assert_eq!((found.frames, found.rate), (0, Some(25.0)));
    }

    #[test]
    fn music_has_audio_buffers() {
        let mut music = status();
        music["information"] = json!({});
        music["stats"]["displayedpictures"] = json!(0);
        music["stats"]["decodedvideo"] = json!(0);
        let found = read(&music).unwrap();
        assert_eq!((found.frames, found.rate), (227, None));
    }

    #[test]
    fn each_fault_is_said() {
        for (bytes, named) in [
            (
                &b"HTTP/1.0 401 Unauthorized\r\n\r\n<html>"[..],
                "--password-file",
            ),
            (b"HTTP/1.0 404 Not Found\r\n\r\n", "404"),
            (b"HTTP/1.1 200 OK\r\n\r\n{\"a\":1}", "state"),
            (b"HTTP/1.1 200 OK\r\n\r\n{", "no status"),
            (b"HTTP/1.1 200 OK\r\n", "HTTP"),
            (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP"),
            (b"", "HTTP"),
        ] {
            let error = answer(bytes).unwrap_err();
            assert!(error.contains(named), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn an_address_is_read() {
        for (url, expected) in [
            ("http://127.0.0.1:8081", "127.0.0.1:8081"),
            ("http://localhost/", "127.0.0.1:8080"),
            ("http://[::1]:9", "[::1]:9"),
            ("http://[::1]", "[::1]:8080"),
        ] {
            let found: Address = url.parse().unwrap();
            assert_eq!(found.socket.to_string(), expected);
        }
        for url in [
            "127.0.0.1:8080",
            "https://127.0.0.1",
            "http://vlc.example:8080",
            "http://:secret@127.0.0.1:8080",
            "http://127.0.0.1:8080/requests/status.xml",
            "http://127.0.0.1:99999",
            "http://::1",
        ] {
            assert!(url.parse::<Address>().is_err(), "{url}");
        }
    }

    #[test]
    fn the_password_is_in_the_question() {
        let address = "http://127.0.0.1:8080".parse().unwrap();
        let text = question(&address, "pass");
        assert!(
            text.contains("\r\nAuthorization: Basic OnBhc3M=\r\n"),
            "{text}"
        );
        let expected = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ];
        for (plain, coded) in expected {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd(bytes: Vec<u8>, body: Vec<u8>) {
            let _ = answer(&bytes);
            let _ = answer(&[b"HTTP/1.1 200 OK\r\n\r\n", &body[..]].concat());
        }

        #[test]
        fn no_statistics_are_too_odd(number: f64, text: String, state: bool) {
            let mut odd = status();
            odd["state"] = json!(if state { "playing" } else { text.as_str() });
            odd["rate"] = json!(number);
            odd["information"]["category"]["Stream 0"]["Frame_rate"] = json!(text);
            for name in ["displayedpictures", "lostpictures", "lostabuffers"] {
                odd["stats"][name] = json!(number);
            }
            let rate = read(&odd).unwrap().rate.unwrap_or(0.0);
            prop_assert!((0.0..=MOST_FRAMES_PER_SECOND).contains(&rate));
        }

        #[test]
        fn no_address_is_too_odd(url in "(http://)?[\\[\\]:a-f0-9./@]{0,30}") {
            let _ = url.parse::<Address>();
        }
    }
}
