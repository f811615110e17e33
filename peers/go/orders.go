package main

import (
	"bufio"
	"os"
)

// Lines of whoever started this program, up to `quit`. If they end without it, nobody is there any more: the program ends at
// once, whatever it is doing.
func orders() <-chan string {
	lines := make(chan string, 16)
	go func() {
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
			if input.Text() == "quit" {
				close(lines)
				return
			}
			lines <- input.Text()
		}
		os.Exit(1)
	}()
	return lines
}
