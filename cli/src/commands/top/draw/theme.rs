//! The few styles there are. Each says something that the words beside it say, too, so that nothing is lost without
//! colours: red is an alarm and nothing else, yellow is what somebody has wished for or is being asked.

use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// Whether colours are wanted.
    pub(crate) colours: bool,
}

impl Theme {
    pub(super) fn plain() -> Style {
        Style::new()
    }

    pub(super) fn strong() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn quiet() -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn chosen() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn alarm(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn wish(self) -> Style {
        self.coloured(Color::Yellow)
    }

    fn coloured(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }
}
