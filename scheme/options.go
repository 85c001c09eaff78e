package scheme

import (
	"iter"
	"reflect"

	"github.com/seed621a2839/reweight"
)

// Fields yields the names and the values of the fields of options, which are a struct. The
// constants of a policy loss are among those of LossOptions, after Policy.
func Fields(options any) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		for f, v := range reflect.ValueOf(options).Fields() {
			if !yield(f.Name, v) {
				return
			}
			if p, ok := v.Interface().(reweight.Policy); ok {
				for f, v := range reflect.ValueOf(p).Fields() {
					if !yield(f.Name, v) {
						return
					}
				}
			}
		}
	}
}

// SetField sets the field of options that Fields yields with that name, and reports whether
// there is one. options point at a struct.
func SetField(options any, name string, value reflect.Value) bool {
	v := reflect.ValueOf(options).Elem()
	if field := v.FieldByName(name); field.IsValid() {
		field.Set(value)
		return true
	}
	policy := v.FieldByName("Policy")
	if !policy.IsValid() || policy.IsNil() {
		return false
	}
	changed := reflect.New(policy.Elem().Type())
	changed.Elem().Set(policy.Elem())
	if policy.Elem().Kind() != reflect.Struct || !SetField(changed.Interface(), name, value) {
		return false
	}
	policy.Set(changed.Elem())
	return true
}

// traitsOf returns the traits of a policy; none of what is no policy, which Loss refuses.
func traitsOf(p reweight.Policy) reweight.PolicyTraits {
	if p == nil || reflect.TypeOf(p).PkgPath() != reflect.TypeFor[reweight.PPO]().PkgPath() {
		return reweight.PolicyTraits{}
	}
	return p.Traits()
}
