//! Reads /proc/self/mountinfo: which line is a directory's mount, and what it says.
//!
//! - Pure: bytes in, an entry out. A line that can't be read is passed over, never an error: the magic of
//!   statfs stands in for it.
//! - Mount points needn't be UTF-8. Blanks, tabs, newlines and backslashes are octal escapes in every field.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// What the mount table says about one mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The type, with its FUSE subtype wherever the kernel was told one.
    pub kind: String,
    /// The mount's options, then the filesystem's.
    pub options: String,
    /// Where it is mounted.
    pub point: OsString,
}

/// The mount that a descriptor lies on, out of its /proc/self/fdinfo file.
pub(super) fn mount_id(fdinfo: &[u8]) -> Option<u64> {
    let line = fdinfo.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"mnt_id:"))?;
    number(line.trim_ascii())
}

/// The entry of a mount by its number, or without one by its device. Of several lines the last is the one on
/// top.
pub(super) fn find(table: &[u8], id: Option<u64>, device: (u32, u32)) -> Option<Entry> {
    let mut lines = table.split(|byte| *byte == b'\n').filter_map(Line::parse);
    let is_it = |line: &Line<'_>| id.map_or(line.device == device, |id| line.id == id);
    lines.rfind(is_it).map(|line| line.entry())
}

/// One line's fields that matter, still escaped.
struct Line<'a> {
    id: u64,
    device: (u32, u32),
    point: &'a [u8],
    mount_options: &'a [u8],
    kind: &'a [u8],
    source: &'a [u8],
    super_options: &'a [u8],
}

impl<'a> Line<'a> {
    /// `id parent major:minor root point options [tags...] - type source options`.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = number(fields.next()?)?;
        let device = fields.nth(1)?;
        let colon = device.iter().position(|byte| *byte == b':')?;
        let (major, minor) = device.split_at_checked(colon)?;
        let device = (number(major)?, number(minor.get(1..)?)?);
        let point = fields.nth(1)?;
        let mount_options = fields.next()?;
        fields.find(|field| *field == b"-")?;
        let kind = fields.next()?;
        let source = fields.next()?;
        let super_options = fields.next()?;
        Some(Self { id, device, point, mount_options, kind, source, super_options })
    }

    fn entry(&self) -> Entry {
        let [mount, filesystem] = [self.mount_options, self.super_options].map(text);
        Entry {
            kind: self.kind(),
            options: format!("{mount},{filesystem}"),
            point: OsString::from_vec(unescape(self.point)),
        }
    }

    /// A plain `fuse` whose source reads `sub#rest` is `fuse.sub`: the convention for subtypes before kernels
    /// had them, which MooseFS still follows.
    fn kind(&self) -> String {
        let kind = text(self.kind);
        if kind != "fuse" {
            return kind;
        }
        let source = text(self.source);
        match source.split_once('#') {
            Some((sub, _)) if !sub.is_empty() && sub.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                format!("{kind}.{sub}")
            }
            _ => kind,
        }
    }
}

fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Decodes `\ooo`; a backslash before anything else stands for itself.
fn unescape(mut field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    while let Some((&byte, rest)) = field.split_first() {
        let octal = if byte == b'\\' { rest.first_chunk::<3>().and_then(octal) } else { None };
        plain.push(octal.unwrap_or(byte));
        field = if octal.is_some() { rest.get(3..).unwrap_or_default() } else { rest };
    }
    plain
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    let value = digits.iter().try_fold(0u32, |value, digit| {
        let digit = char::from(*digit).to_digit(8)?;
        Some(value * 8 + digit)
    })?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    const TABLE: &[u8] = b"21 1 254:0 / / rw,relatime - ext4 /dev/vda rw,errors=continue\n\
        22 21 0:44 / /lustre/run7 rw,flock shared:3 master:1 - lustre 10.0.0.1@tcp:/fs rw,checksum\n\
        garbage\n\
        23 21 0:45 / /mnt/a\\040b\\134c\\011d\xff rw - fuse.sshfs u@h:/x\\040y rw,user_id=0\n\
        24 21 0:46 / /mfs rw - fuse mfs#10.0.0.1:9421 rw\n\
        25 21 0:47 / /bind rw - fuse /a#b rw\n\
        26 22 254:0 /sub /over rw - ext4 /dev/vda rw\n\
        27 21 0:48 / /empty rw - tmpfs  rw,size=1k\n\
        28 21 0:49 / /short rw - tmpfs\n";

    fn by_id(id: u64) -> Option<Entry> {
        find(TABLE, Some(id), (0, 0))
    }

    #[test]
    fn fields_come_from_their_places_whatever_tags_stand_between() {
        let lustre = by_id(22).expect("listed");
        assert_eq!((lustre.kind.as_str(), lustre.point.as_os_str()), ("lustre", OsStr::new("/lustre/run7")));
        assert_eq!(lustre.options, "rw,flock,rw,checksum");
        assert_eq!(by_id(27).expect("a source may be empty").kind, "tmpfs");
    }

    #[test]
    fn escapes_are_decoded_and_other_bytes_kept() {
        let point = by_id(23).expect("listed").point;
        assert_eq!(point.as_bytes(), b"/mnt/a b\\c\td\xff");
        assert_eq!(unescape(b"\\"), b"\\");
        assert_eq!(unescape(b"\\04"), b"\\04");
        assert_eq!(
            unescape(b"\\777\\089\\0401"),
            b"\\777\\089 1",
            "beyond a byte, no octal digit, and one more"
        );
    }

    #[test]
    fn the_number_goes_before_the_device_and_the_last_line_lies_on_top() {
        assert_eq!(by_id(21).expect("listed").point, "/");
        assert_eq!(find(TABLE, None, (254, 0)).expect("listed").point, "/over");
        assert_eq!(find(TABLE, None, (0, 44)).expect("listed").kind, "lustre");
        assert_eq!(
            find(TABLE, Some(99), (254, 0)),
            None,
            "a number that isn't in the table is not the device"
        );
    }

    #[test]
    fn a_subtype_in_front_of_the_source_counts() {
        assert_eq!(by_id(24).expect("listed").kind, "fuse.mfs");
        assert_eq!(by_id(25).expect("listed").kind, "fuse", "a path with a # isn't a subtype");
    }

    #[test]
    fn what_cannot_be_read_is_not_there() {
        assert_eq!(by_id(28), None);
        assert_eq!(find(b"", None, (0, 0)), None);
        assert_eq!(mount_id(b"pos:\t0\nflags:\t02100000\nmnt_id:\t29\nino:\t5\n"), Some(29));
        assert_eq!(mount_id(b"pos:\t0\nflags:\t0\n"), None);
    }
}
