// The tree beside an entry: opened by arrow keys or a click, filled as it is opened.
