// SPDX-License-Identifier: GPL-2.0-or-later
//! Containers and pods, as the path of a cgroup names them. No daemon is asked, so a container
//! has no name here but its id.
//!
//! Docker, containerd, CRI-O and Podman give a container an id of 64 hexadecimal digits, and a
//! cgroup of its own: a scope of systemd with their name before the id (`docker-ID.scope`), or a
//! folder (`/docker/ID`). The kubelet gives a pod a slice (`kubepods-burstable-podUID.slice`,
//! where the dashes of the UID are `_`) or a folder (`/kubepods/burstable/podUID`).

const ID_DIGITS: usize = 64;
/// As `docker ps` shows an id.
const LEAST_DIGITS: usize = 12;
const UID_DIGITS: usize = 32;
/// Before these the UID of a pod has a dash.
const UID_DASHES: [usize; 4] = [8, 13, 18, 23];

fn is_hex(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.bytes().all(is_digit)
}

/// The id of a container, or a beginning of it that is long enough to be meant.
pub fn is_id(text: &str) -> bool {
    (LEAST_DIGITS..=ID_DIGITS).contains(&text.len()) && is_hex(text)
}

/// The UID of a pod; one whose manifest is a file has no dashes.
pub fn is_uid(text: &str) -> bool {
    let digits = text.replace('-', "");
    let dashes = text.match_indices('-').map(|(at, _)| at);
    is_hex(&digits)
        && digits.len() == UID_DIGITS
        && (digits.len() == text.len() || dashes.eq(UID_DASHES))
}

/// Whether the path is of a container with this id, or of one inside that.
pub fn is_in_container(cgroup: &str, id: &str) -> bool {
    let mut ids = cgroup.split('/').filter_map(container_id);
    ids.any(|found| found.starts_with(id))
}

/// Whether the path is of a pod with this UID.
pub fn is_in_pod(cgroup: &str, uid: &str) -> bool {
    cgroup.split('/').any(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let found = part.rsplit_once("pod");
        let found = found.filter(|(before, _)| before.is_empty() || before.ends_with('-'));
        found.is_some_and(|(_, found)| found.replace('_', "-") == uid)
    })
}

/// Not of the monitor `conmon`, which has a scope beside that of its container.
fn container_id(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let (before, id) = part.rsplit_once('-').unwrap_or(("", part));
    (id.len() == ID_DIGITS && is_hex(id) && !before.ends_with("conmon")).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4b0f2f1a6c1e7d3b9a8f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a09";
    const INNER: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
    const UID: &str = "7f3c9b52-0d4e-4a1b-9c58-2f6e1d0a7b43";
    const STATIC_UID: &str = "0123456789abcdef0123456789abcdef";

    /// As /proc/PID/cgroup has them.
    fn path(text: &str) -> String {
        let text = text.replace("SYSTEMD_UID", &UID.replace('-', "_"));
        let text = text.replace("STATIC_UID", STATIC_UID).replace("UID", UID);
        text.replace("INNER", INNER).replace("ID", ID)
    }

    #[test]
    fn containers_are_known_by_their_cgroup() {
        for (text, is_in) in [
            // systemd's cgroups, version 2 and systemd's own tree of version 1
            ("/system.slice/docker-ID.scope", true),
            ("/system.slice/docker-ID.scope/init", true),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope",
                true,
            ),
            ("/machine.slice/libpod-ID.scope", true),
            ("/machine.slice/libpod-ID.scope/container", true),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope",
                true,
            ),
            ("/system.slice/web.service/libpod-payload-ID", true),
            ("/system.slice/nerdctl-ID.scope", true),
            (
                "/kubepods.slice/kubepods-podSYSTEMD_UID.slice/cri-containerd-ID.scope",
                true,
            ),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podSYSTEMD_UID.slice/crio-ID.scope",
                true,
            ),
            (
                "/kubepods.slice/kubepods-podSYSTEMD_UID.slice/docker-ID.scope",
                true,
            ),
            // the cgroupfs driver, in both versions
            ("/docker/ID", true),
            ("/default/ID", true),
            ("/libpod_parent/libpod-ID", true),
            ("/kubepods/burstable/podUID/ID", true),
            ("/kubepods/podUID/crio-ID", true),
            ("/k8s.io/ID", true),
            // a container that runs others
            ("/system.slice/docker-ID.scope/docker/INNER", true),
            ("/docker/ID/kubelet/kubepods/besteffort/podUID/INNER", true),
            // none, or another
            ("/machine.slice/libpod-conmon-ID.scope", false),
            (
                "/kubepods.slice/kubepods-podSYSTEMD_UID.slice/crio-conmon-ID.scope",
                false,
            ),
            ("/system.slice/docker-INNER.scope", false),
            ("/system.slice/docker.service", false),
            ("/system.slice/docker-IDff.scope", false),
            ("/", false),
            ("", false),
        ] {
            for id in [ID, &ID[..12]] {
                assert_eq!(is_in_container(&path(text), id), is_in, "{text}");
            }
        }
    }

    #[test]
    fn a_container_in_a_container_has_both_ids() {
        let nested = path("/docker/ID/docker/INNER");
        assert!(is_in_container(&nested, INNER));
        assert!(!is_in_container(&path("/docker/ID"), INNER));
    }

    #[test]
    fn pods_are_known_by_their_cgroup() {
        for (text, is_in) in [
            (
                "/kubepods.slice/kubepods-podSYSTEMD_UID.slice/cri-containerd-ID.scope",
                true,
            ),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podSYSTEMD_UID.slice/crio-ID.scope",
                true,
            ),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podSYSTEMD_UID.slice/cri-containerd-ID.scope",
                true,
            ),
            ("/kubepods.slice/kubepods-podSYSTEMD_UID.slice", true),
            ("/kubepods/burstable/podUID/ID", true),
            ("/kubepods/podUID", true),
            ("/docker/ID/kubelet/kubepods/podUID/INNER", true),
            ("/kubepods/podSTATIC_UID/ID", false),
            ("/kubepods.slice/kubepods-podSTATIC_UID.slice", false),
            ("/machine.slice/machine-libpod_podUID.slice", false),
            ("/kubepods/podUID0/ID", false),
            ("/system.slice/UID", false),
            ("/", false),
        ] {
            assert_eq!(is_in_pod(&path(text), UID), is_in, "{text}");
        }
        assert!(is_in_pod(&path("/kubepods/podSTATIC_UID/ID"), STATIC_UID));
        assert!(is_in_pod(
            &path("/kubepods.slice/kubepods-podSTATIC_UID.slice"),
            STATIC_UID
        ));
    }

    #[test]
    fn ids_and_uids_are_told_from_names() {
        assert!(is_id(ID) && is_id(&ID[..12]));
        for text in [&ID[..11], "", "web", "4B0F2F1A6C1E", &format!("{ID}0")] {
            assert!(!is_id(text), "{text}");
        }
        assert!(is_uid(UID) && is_uid(STATIC_UID));
        let (short, spread) = (&UID[1..], UID.replace("-", "--"));
        let moved = UID.replacen('-', "", 1) + "-";
        for text in [short, &spread, &moved, "", "web-0", &UID.to_uppercase()] {
            assert!(!is_uid(text), "{text}");
        }
    }
}
