package main

import (
	"encoding/base64"
	"strconv"
)

// Cursors as the API gives them out. Clients treat them as opaque; this one jumps into the middle of lists, where nobody
// gets without having turned the pages before.

func cursor(position int) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(position)))
}

func nameCursor(name string) string {
	return base64.RawURLEncoding.EncodeToString([]byte("name:" + name))
}
