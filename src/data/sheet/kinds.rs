//! What a column of a file that knows its types has.

/// What the values of a column are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Nothing at all.
    Nothing,
    /// Numbers.
    Number,
    /// Truths.
    Truth,
    /// Dates, with or without a time.
    Date,
    /// Dates with a time, in UTC.
    Utc,
    /// Texts.
    Text,
    /// What is no cell of a table, such as `lists`.
    Unread(&'static str),
}

impl Kind {
    /// For a message, after "has".
    pub fn in_words(&self) -> &'static str {
        match self {
            Kind::Nothing => "nothing",
            Kind::Number => "numbers",
            Kind::Truth => "truths",
            Kind::Date => "dates",
            Kind::Utc => "dates in UTC",
            Kind::Text => "texts",
            Kind::Unread(what) => what,
        }
    }

    /// Whether they are dates.
    pub fn is_date(&self) -> bool {
        matches!(self, Kind::Date | Kind::Utc)
    }

    /// Whether a file with this column goes on where one with the other ends.
    pub fn goes_with(&self, other: &Kind) -> bool {
        self == other || *self == Kind::Nothing || *other == Kind::Nothing
    }
}
