//! What is asked of masks and of the loss, and must agree.

use super::Rules;
use crate::config::language::sections::Source;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::spelling::shorten;

impl Rules<'_> {
    /// A value of masks that is a class and is ignored must be the number of that class, too. Else the class would never be learnt,
    /// and nothing would say so.
    pub(super) fn ignored_value_of_masks(&self) {
        let Source::ImageList(list) = &self.experiment.data.source else { return };
        let (Some(values), Some(names)) = (&list.mask_values, &list.classes) else { return };
        let index = self.experiment.loss.describe().ignore_index().and_then(|index| usize::try_from(index).ok());
        let Some(class) = values.iter().position(|value| Some(*value) == index) else { return };
        let (Some(index), Some(name)) = (index.filter(|index| *index != class), names.get(class)) else { return };
        let message = format!(
            "`ignore_index` is {index}, which is the value of the class `{}` in masks: it would never be learnt",
            shorten(name)
        );
        let help = "`ignore_index` is a value of masks that is not in `mask_values`; leave it out if every pixel counts. A `weight` of 0 takes a class out \
                    of the loss";
        let error = Diagnostic::error(message).help(help);
        self.reporter.at_keys(error, "loss.ignore_index", "is ignored", "data.mask_values", "is a class here");
    }
}
