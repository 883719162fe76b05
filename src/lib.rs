//! BatchWeave.
#![deny(missing_docs)]

macro_rules! internal {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $(
            #[cfg(feature = "internals")]
            $(#[$doc])*
            pub mod $name;
            #[cfg(not(feature = "internals"))]
            mod $name;
        )*
    };
}

mod error;
mod id;
mod options;
mod position;
mod share;
internal! {
    /// The seam to time, entropy and threads.
    env,
    /// Bytes and values.
    format,
    /// Every bound, with its reason.
    limits,
    /// Names and bytes.
    storage,
}

pub use error::{Error, ErrorKind, Result};
pub use id::{
    Checksum, Generation, Incarnation, Name, Nonce, Part, Segment, Sequence, Step, StoreUuid, Version,
};
pub use options::{Durability, MountClass, Options, Primitive, ReadMode, Settings};
pub use position::Position;
pub use share::Share;
