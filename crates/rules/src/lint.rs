//! What is legal and probably wrong, and what is wrong only between rules.

use crate::diagnostic::Diagnostics;
use crate::model::Rule;

/// Looks at all rules together.
pub(crate) fn lint(_rules: &[Rule], _diagnostics: &mut Diagnostics) {}
