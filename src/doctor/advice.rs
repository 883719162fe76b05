//! What mount options mean for a store.
//!
//! - Pure: read from the mount table. Whether a store is safe is for the probe and the trials to find out;
//!   what is said here explains what they find, and what will be slow.

use serde::Serialize;

use crate::storage::Mount;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Weight {
    /// Good to know: nothing to do.
    Note,
    /// To be changed, or to be lived with.
    Warning,
}

/// What one option means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// The option as the mount table has it.
    pub option: String,
    /// How much it matters.
    pub weight: Weight,
    /// What it means for a store.
    pub meaning: &'static str,
}

/// What the options of a mount mean, in the order of the table.
pub(super) fn on(mount: &Mount) -> Vec<Advice> {
    let is_nfs = matches!(mount.kind.as_str(), "nfs" | "nfs4");
    let mut said = Vec::new();
    for option in mount.options.split(',') {
        let found = meaning(option).or_else(|| if is_nfs { meaning_on_nfs(option) } else { None });
        let known = said.iter().any(|advice: &Advice| advice.option == option);
        if let (Some((weight, meaning)), false) = (found, known) {
            said.push(Advice { option: option.to_owned(), weight, meaning });
        }
    }
    said
}

fn meaning(option: &str) -> Option<(Weight, &'static str)> {
    use Weight::{Note, Warning};
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    Some(match name {
        "ro" => (Warning, "read-only: consumers can read here, nobody can publish or checkpoint"),
        "local_lock" | "noflock" | "localflock" | "flock" | "nolock" => {
            (Note, "how locks work here doesn't matter: no lock is ever taken")
        }
        "nobarrier" | "barrier" if option != "barrier=1" => {
            (Warning, "without barriers a power cut may take what was acknowledged")
        }
        "data" if option == "data=writeback" => {
            (Note, "a commit is synced before it gets its name, so this loses nothing")
        }
        "sync" | "dirsync" => (Note, "every call is synced already: publishing is slower than it has to be"),
        _ => return None,
    })
}

fn meaning_on_nfs(option: &str) -> Option<(Weight, &'static str)> {
    use Weight::{Note, Warning};
    Some(match option {
        "nocto" => (
            Warning,
            "opening a directory anew shows no new names until its attributes expire: new steps are seen \
             late, and whether marks can be read afresh has to be tried from two nodes (doctor --peer); \
             mount without it",
        ),
        "soft" | "softerr" => (
            Warning,
            "a server that is slow fails calls that may still happen: publishes end with an unknown outcome \
             and are settled by replay, syncs fail and poison producers; mount with hard",
        ),
        "noac" | "actimeo=0" | "lookupcache=none" => {
            (Note, "nothing is cached: new steps are seen at once, each look costs the server a call")
        }
        "lookupcache=pos" | "lookupcache=positive" => {
            (Note, "names that aren't there aren't cached: new steps are seen a little sooner")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn weights(kind: &str, options: &str) -> Vec<(String, Weight)> {
        let mount =
            Mount { kind: kind.into(), magic: 0, options: options.into(), point: OsString::from("/data") };
        on(&mount).into_iter().map(|advice| (advice.option, advice.weight)).collect()
    }

    #[test]
    fn what_matters_is_named_and_nothing_else() {
        assert_eq!(weights("ext4", "rw,relatime,rw,data=ordered,barrier=1"), []);
        let plain = "rw,vers=4.2,rsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys";
        assert_eq!(weights("nfs4", plain), []);
        let odd = "rw,nocto,soft,local_lock=all,lookupcache=none";
        let expected = [
            ("nocto".to_owned(), Weight::Warning),
            ("soft".to_owned(), Weight::Warning),
            ("local_lock=all".to_owned(), Weight::Note),
            ("lookupcache=none".to_owned(), Weight::Note),
        ];
        assert_eq!(weights("nfs4", odd), expected);
        assert_eq!(weights("lustre", "rw,noflock,nocto"), [("noflock".to_owned(), Weight::Note)]);
        assert_eq!(weights("xfs", "ro,ro"), [("ro".to_owned(), Weight::Warning)]);
        assert_eq!(weights("ext4", "rw,barrier=0"), [("barrier=0".to_owned(), Weight::Warning)]);
    }
}
