package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// documents returns the Markdown files of the tree by their paths, without their code.
func documents(t *testing.T) map[string]string {
	t.Helper()
	code := regexp.MustCompile("(?ms)^ *```.*?^ *```|`[^`\n]+`")
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "node_modules" || name == "bin" || name == "testdata" || strings.HasPrefix(name, ".") && path != root):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		found[filepath.ToSlash(path)] = code.ReplaceAllStringFunc(string(text), func(c string) string {
			if strings.Contains(c, "\n") {
				return ""
			}
			return strings.Trim(c, "`")
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// anchors returns the fragments that lead to the headings of a document.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	link := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	for _, heading := range regexp.MustCompile(`(?m)^#{1,6} (.+)$`).FindAllStringSubmatch(text, -1) {
		title := link.ReplaceAllString(heading[1], "$1")
		all[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))] = true
	}
	return all
}

// Links of documents within the tree lead somewhere: files, folders, headings, pictures.
func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	all := documents(t)
	links := 0
	for path, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			file, fragment, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(path), file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", path, m[1])
			} else if fragment != "" && !anchors(all[target])[fragment] {
				t.Errorf("%s: %s: there is no such heading", path, m[1])
			}
		}
	}
	if len(all) < 60 || links < 250 {
		t.Errorf("only %d links in %d documents were found", links, len(all))
	}
}
