//! The errnos that storages answer with: their Linux numbers and their names.
//!
//! - Only the numbers that are the same on every architecture the library builds for.

use std::io;

macro_rules! errnos {
    ($($name:ident = $number:literal),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            pub const $name: i32 = $number;
        )*

        /// An errno's name, if it is one of these.
        pub fn name(errno: i32) -> Option<&'static str> {
            match errno {
                $($number => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

errnos! {
    EPERM = 1, ENOENT = 2, EINTR = 4, EIO = 5, EBADF = 9, EAGAIN = 11, ENOMEM = 12, EACCES = 13, EFAULT = 14,
    EBUSY = 16, EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20, EISDIR = 21, EINVAL = 22, EMFILE = 24,
    EFBIG = 27, ENOSPC = 28, EROFS = 30, EMLINK = 31, ENAMETOOLONG = 36, ENOSYS = 38, ENOTEMPTY = 39,
    ELOOP = 40, EOPNOTSUPP = 95, ENOTCONN = 107, ESHUTDOWN = 108, ETIMEDOUT = 110, ESTALE = 116,
    EREMOTEIO = 121, EDQUOT = 122,
}

/// The system's error of this number.
pub fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}
