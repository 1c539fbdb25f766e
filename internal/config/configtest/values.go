package configtest

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A Value is a number, a text or a switch that something holds, and the path to it.
type Value struct{ Path, Text string }

const module = "github.com/mongostream/streamer/"

// Values returns the values in v, and in everything that v refers to, in types of this module. It
// leaves out the configuration itself, and state, which changes while others read it: the fields
// named mu, and maps.
func Values(v any) []Value {
	w := walker{seen: make(map[visit]bool)}
	w.walk("", reflect.ValueOf(v))
	return w.all
}

type visit struct {
	at uintptr
	of reflect.Type
}

type walker struct {
	seen map[visit]bool
	all  []Value
}

func (w *walker) add(path, text string) { w.all = append(w.all, Value{path, text}) }

// walk adds the values in v.
func (w *walker) walk(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid:
		w.add(path, "nil")
	case reflect.Bool:
		w.add(path, strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.add(path, strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		w.add(path, strconv.FormatUint(v.Uint(), 10))
	case reflect.Float32, reflect.Float64:
		w.add(path, strconv.FormatFloat(v.Float(), 'f', -1, 64))
	case reflect.String:
		w.add(path, v.String())
	case reflect.Interface:
		w.walk(path, v.Elem())
	case reflect.Pointer:
		w.add(path, nilOrSet(v.IsNil()))
		if at := (visit{v.Pointer(), v.Type()}); !v.IsNil() && !w.seen[at] {
			w.seen[at] = true
			w.walk(path, v.Elem())
		}
	case reflect.Struct:
		if !ours(v.Type()) {
			return
		}
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "mu" {
				w.walk(path+"."+name, v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		w.add(path, fmt.Sprint(v.Len(), " items"))
		for i := range min(v.Len(), 100) {
			w.walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	default: // functions, channels, and maps, which are state
		w.add(path, nilOrSet(v.IsNil()))
	}
}

func nilOrSet(isNil bool) string {
	if isNil {
		return "nil"
	}
	return "set"
}

// ours reports whether a type is one of this module's rooms, or holds their values.
func ours(t reflect.Type) bool {
	if strings.HasPrefix(t.PkgPath(), module+"internal/config") {
		return false
	}
	holders := []string{"", "golang.org/x/time/rate", "net/netip", "crypto/tls"}
	return strings.HasPrefix(t.PkgPath(), module) || slices.Contains(holders, t.PkgPath())
}

// A Leaf is the field of a key.
type Leaf struct {
	Key   string
	Tag   reflect.StructTag
	Field reflect.Value
}

// Leaves returns the fields of all keys of a configuration that cfg points at, or of a section of
// it: those of a list's items with their numbers, sinks[0].name.
func Leaves(cfg any) []Leaf { return leaves("", reflect.ValueOf(cfg).Elem()) }

func leaves(prefix string, section reflect.Value) (all []Leaf) {
	for i := range section.NumField() {
		field := section.Field(i)
		tag := section.Type().Field(i).Tag
		key := prefix + tag.Get("key")
		_, leaf := tag.Lookup("default")
		switch {
		case leaf:
			all = append(all, Leaf{key, tag, field})
		case field.Kind() == reflect.Slice:
			for n := range field.Len() {
				all = append(all, leaves(fmt.Sprintf("%s[%d].", key, n), field.Index(n))...)
			}
		default:
			all = append(all, leaves(key+".", field)...)
		}
	}
	return all
}

// Change gives the key another value of its form, as far as tags say it.
func (l Leaf) Change() {
	words := strings.Fields(l.Tag.Get("one"))
	switch f := l.Field; {
	case f.Kind() == reflect.Bool:
		f.SetBool(!f.Bool())
	case f.CanInt():
		f.SetInt(f.Int() + 1)
	case f.CanFloat():
		f.SetFloat(f.Float() + 0.001)
	case f.Kind() == reflect.String && len(words) > 0:
		f.SetString(words[(slices.Index(words, f.String())+1)%len(words)])
	case f.Kind() == reflect.String:
		f.SetString(f.String() + "x")
	case f.Kind() == reflect.Slice:
		f.Set(reflect.Append(f, reflect.ValueOf(map[bool]string{true: "10.0.0.0/8", false: "other:1"}[l.Tag.Get("check") == "network"])))
	default:
		panic("no other value of " + l.Key)
	}
}
