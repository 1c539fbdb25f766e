package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// A Linked is a package that a program contains.
type Linked struct {
	ImportPath string
	Imports    []string
}

// Link lists the packages of a program, as the go command sees it.
func Link(ctx context.Context, root, program string) ([]Linked, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Imports", "./"+program)
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list what %s links: %w: %s", program, err, stderr.Bytes())
	}
	var linked []Linked
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var l Linked
		switch err := decoder.Decode(&l); {
		case errors.Is(err, io.EOF):
			return linked, nil
		case err != nil:
			return nil, fmt.Errorf("list what %s links: %w", program, err)
		}
		linked = append(linked, l)
	}
}

// CheckLinked reports packages that must never be linked, with the chain of imports that links
// them. The program is the last of linked, as in the output of go list -deps: every package comes
// after its imports.
func CheckLinked(linked []Linked) (broken []string) {
	importer := map[string]string{}
	for _, l := range slices.Backward(linked) {
		for _, imported := range l.Imports {
			if _, known := importer[imported]; !known {
				importer[imported] = l.ImportPath
			}
		}
	}
	for _, l := range linked {
		if !slices.ContainsFunc(neverLinked(), func(never string) bool { return matches(never+"/...", l.ImportPath) }) {
			continue
		}
		way := []string{l.ImportPath}
		for at, ok := importer[l.ImportPath]; ok; at, ok = importer[at] {
			way = append(way, at)
		}
		slices.Reverse(way)
		broken = append(broken, "links "+strings.Join(way, " → "))
	}
	return broken
}
