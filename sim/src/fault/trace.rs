//! What was called, on what, and what came of it: in words.

use std::fmt;
use std::io;

use super::Stopped;
use crate::errno;

macro_rules! methods {
    ($($name:ident $word:literal),* $(,)?) => {
        /// A method of the storage trait.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method {
            $(
                #[doc = concat!("`", $word, "`.")]
                $name,
            )*
        }

        impl Method {
            /// All methods.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        impl fmt::Display for Method {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$name => $word,)*
                })
            }
        }
    };
}

methods! {
    OpenRoot "open_root", MakeRoot "make_root", OpenDir "open_dir", CreateExclusive "create_exclusive",
    Open "open", Close "close", Size "size", Kind "kind", ReadAt "read_at", WriteAt "write_at",
    CopyRange "copy_range", Map "map", Populate "populate", SyncFile "sync_file", Link "link",
    Rename "rename", RenameNoreplace "rename_noreplace", List "list", MakeDir "make_dir",
    RemoveDir "remove_dir", SyncDir "sync_dir", Remove "remove", Space "space", Mount "mount",
    MapWord "map_word", Wait "wait", Wake "wake", RenameRoot "rename_root",
}

impl Method {
    /// Those that change what is on a disk or what is durable: between two of them a crash leaves the same.
    pub const CHANGES: &[Self] = &[
        Self::MakeRoot,
        Self::CreateExclusive,
        Self::WriteAt,
        Self::CopyRange,
        Self::SyncFile,
        Self::Link,
        Self::Rename,
        Self::RenameNoreplace,
        Self::RenameRoot,
        Self::MakeDir,
        Self::RemoveDir,
        Self::SyncDir,
        Self::Remove,
    ];
}

/// How a call ended, as its caller saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Done,
    /// With an error, without effect as far as this storage can tell.
    Failed(String),
    /// It had its effect, but its caller was told of an error.
    ReplyLost(String),
    /// Its process was stopped before it or while it ran.
    Stopped,
}

impl Outcome {
    /// What its caller saw, in words; nothing where it ended well.
    pub(crate) fn words(&self) -> &str {
        match self {
            Self::Done => "",
            Self::Failed(words) | Self::ReplyLost(words) => words,
            Self::Stopped => "stopped",
        }
    }

    pub(super) fn of<T>(result: &io::Result<T>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(error) if Stopped::caused(error) => Self::Stopped,
            Err(error) => Self::Failed(in_words(error)),
        }
    }
}

/// One call of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its place among the calls of its process, from 0.
    pub number: u64,
    /// What was called.
    pub method: Method,
    /// What it was about: a path from the root, by the names under which things were opened, or two.
    pub on: String,
    /// How it ended.
    pub outcome: Outcome,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.method, self.on)?;
        match &self.outcome {
            Outcome::Done => f.write_str("ok"),
            Outcome::Failed(error) => f.write_str(error),
            Outcome::ReplyLost(error) => write!(f, "done, but the caller got {error}"),
            Outcome::Stopped => f.write_str("stopped"),
        }
    }
}

fn in_words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => errno::name(number).map_or_else(|| format!("errno {number}"), str::to_owned),
        None => error.to_string(),
    }
}
