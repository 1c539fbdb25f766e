package config

import (
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// fileSuffix makes of the key of a secret the key of the file that holds it.
const fileSuffix = "_file"

// A key is one leaf of the table, bound to the field that its value goes to.
type key struct {
	path string // joined with dots: cluster.lease_ttl
	tag  reflect.StructTag
	to   any // points at the field
	// indirect says that the value is the path of a file that holds the secret.
	indirect bool
}

// appendKeys appends the keys of a section in their order.
func appendKeys(keys []key, prefix string, section reflect.Value) []key {
	for i := range section.NumField() {
		tag := section.Type().Field(i).Tag
		path := prefix + tag.Get("key")
		if items := section.Field(i); items.Kind() == reflect.Slice && items.Type().Elem().Kind() == reflect.Struct {
			for n := range items.Len() {
				keys = appendKeys(keys, fmt.Sprintf("%s[%d].", path, n), items.Index(n))
			}
			continue
		}
		if _, leaf := tag.Lookup("default"); !leaf {
			keys = appendKeys(keys, path+".", section.Field(i))
			continue
		}
		k := key{path: path, tag: tag, to: section.Field(i).Addr().Interface()}
		keys = append(keys, k)
		if k.secret() {
			keys = append(keys, key{path: path + fileSuffix, tag: tag, to: k.to, indirect: true})
		}
	}
	return keys
}

// lists returns the lists of sections of a section, by their paths.
func lists(prefix string, section reflect.Value) map[string]reflect.Value {
	found := make(map[string]reflect.Value)
	for i := range section.NumField() {
		field := section.Field(i)
		path := prefix + section.Type().Field(i).Tag.Get("key")
		switch {
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			found[path] = field
		case field.Kind() == reflect.Struct:
			if _, leaf := section.Type().Field(i).Tag.Lookup("default"); !leaf {
				maps.Copy(found, lists(path+".", field))
			}
		}
	}
	return found
}

// secret reports whether the key's value is never shown.
func (k key) secret() bool { return k.tag.Get("secret") == "yes" }

// hidden reports whether the field has a secret: text shows it otherwise than it is.
func (k key) hidden() bool {
	return k.secret() && reflect.ValueOf(k.to).Elem().String() != k.text()
}

// target returns the path of the key whose field this one sets.
func (k key) target() string {
	if k.indirect {
		return strings.TrimSuffix(k.path, fileSuffix)
	}
	return k.path
}

// list returns the field of a key that takes a list.
func (k key) list() (*[]string, bool) {
	list, ok := k.to.(*[]string)
	return list, ok
}

// about describes the error of a text. It repeats neither a secret nor an address, which may
// contain credentials.
func (k key) about(text string, err error) error {
	addresses := []string{"broker", "endpoint", "nats", "receiver"}
	isAddress := strings.Contains(text, "@") || strings.Contains(text, "://") || slices.Contains(addresses, k.tag.Get("check"))
	if k.secret() || isAddress {
		return err
	}
	return fmt.Errorf("%q %w", text, err)
}

// text writes the field's value as an operator would, a secret as its String shows it.
func (k key) text() string {
	switch v := k.to.(type) {
	case *[]string:
		return "[" + strings.Join(*v, ", ") + "]"
	case *time.Duration:
		return formatDuration(*v)
	case *int64:
		return formatSize(*v)
	case *slog.Level:
		return strings.ToLower(v.String())
	default:
		return fmt.Sprint(reflect.ValueOf(v).Elem().Interface())
	}
}

// parse checks a text and gives its value to the key's field. An empty text is right for a key that
// is empty by default, whatever its form: it means that there is none.
func (t *table) parse(k key, text string) (err error) {
	if text == "" && k.tag.Get("default") == "" {
		reflect.ValueOf(k.to).Elem().SetZero()
		return nil
	}
	if err := t.check(k, text); err != nil {
		return err
	}
	bounds := k.tag.Get("range")
	switch to := k.to.(type) {
	case *string:
		*to = text
	case *bool:
		*to, err = parseBool(text)
	case *int:
		*to, err = within(bounds, text, parseInt)
	case *float64:
		*to, err = within(bounds, text, parseFloat)
	case *int64:
		*to, err = within(bounds, text, parseSize)
	case *time.Duration:
		*to, err = within(bounds, text, parseDuration)
	case encoding.TextUnmarshaler:
		err = to.UnmarshalText([]byte(text))
	default:
		panic(fmt.Sprintf("table: %s: no form for %T", k.path, to))
	}
	return err
}

// check holds a text against the key's one and check tags.
func (t *table) check(k key, text string) error {
	if words := strings.Fields(k.tag.Get("one")); len(words) > 0 && !slices.Contains(words, text) {
		return errors.New("must be one of " + strings.Join(words, ", "))
	}
	if form := k.tag.Get("check"); form != "" {
		return t.forms[form](text)
	}
	return nil
}
