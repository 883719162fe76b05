//! Why a commit may have no effect: one number for each reason, for ever.

macro_rules! voids {
    ($($(#[$doc:meta])+ $name:ident = $number:literal, $word:literal;)+) => {
        /// Why a commit has no effect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Void { $($(#[$doc])+ $name,)+ }

        impl Void {
            /// Its number in an index; 0 stands for an effect.
            pub fn number(self) -> u8 {
                match self { $(Self::$name => $number,)+ }
            }

            /// The reason of a number in an index.
            pub fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// For people.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

voids! {
    /// Its incarnation isn't current.
    Fenced = 1, "its incarnation isn't current";
    /// Its first sequence isn't the next one: a duplicate or a gap.
    OutOfSequence = 2, "its first sequence isn't the next";
    /// The stream is closed.
    Closed = 3, "the stream is closed";
    /// It was written for another generation.
    OtherGeneration = 4, "it was written for another generation";
    /// Another one of its kind came between.
    Overtaken = 5, "another one came between";
    /// It isn't about the next step.
    NotNext = 6, "it isn't about the next step";
    /// Parts of the next step are published, and it doesn't say that they may stay open.
    OpenStep = 7, "it would leave a step open";
    /// The stream is open already.
    NotClosed = 8, "the stream is open already";
    /// Its step is below the floor.
    BelowFloor = 9, "its step is below the floor";
    /// Its step lies beyond the head.
    BeyondHead = 10, "its step lies beyond the head";
    /// The group has a checkpoint of that name.
    NameTaken = 11, "the group has a checkpoint of that name";
    /// What it releases isn't there.
    Unknown = 12, "what it releases isn't there";
    /// A live group needs a step that it would free.
    Protected = 13, "a live group needs a step that it would free";
    /// Two or more groups live, and it doesn't say that it may take effect all the same.
    ManyGroups = 14, "two or more groups live";
    /// All of it is skipped already.
    Skipped = 15, "all of it is skipped already";
    /// The producer hasn't finished.
    Unfinished = 16, "the producer hasn't finished";
    /// The producer has parts that are retained.
    Retained = 17, "the producer has parts that are retained";
    /// It doesn't speak of just the producers that there are.
    OtherProducers = 18, "it doesn't speak of just the producers that there are";
    /// Its parts, or some of them, aren't in their producer's turn.
    BeyondTurn = 19, "it goes beyond its producer's turn";
    /// There is a ring of turns, and the producer isn't in it.
    OutsideRing = 20, "its producer isn't in the ring of turns";
    /// The producer is in the ring of turns, which would wait for a name that nobody knows any more.
    InRing = 21, "the producer is in the ring of turns";
    /// It doesn't speak of the ring of turns that there is.
    OtherRing = 22, "it doesn't speak of the ring of turns that there is";
}
