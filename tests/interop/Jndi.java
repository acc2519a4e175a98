import java.util.Hashtable;
import javax.naming.AuthenticationException;
import javax.naming.Context;
import javax.naming.NamingEnumeration;
import javax.naming.directory.BasicAttribute;
import javax.naming.directory.BasicAttributes;
import javax.naming.directory.SearchControls;
import javax.naming.directory.SearchResult;
import javax.naming.ldap.Control;
import javax.naming.ldap.InitialLdapContext;
import javax.naming.ldap.LdapContext;
import javax.naming.ldap.PagedResultsControl;
import javax.naming.ldap.PagedResultsResponseControl;
import javax.naming.ldap.StartTlsRequest;
import javax.naming.ldap.StartTlsResponse;

/** Java's own LDAP client against a directory that `run` has made: StartTLS, ldaps, paging, changes. */
public class Jndi {
    static final String ANN = "uid=ann,ou=people,dc=example,dc=com";
    static final String PASSWORD = "ann's password";
    static final String PEOPLE = "ou=people,dc=example,dc=com";

    static Hashtable<String, String> environment(String url) {
        Hashtable<String, String> environment = new Hashtable<>();
        environment.put(Context.INITIAL_CONTEXT_FACTORY, "com.sun.jndi.ldap.LdapCtxFactory");
        environment.put(Context.PROVIDER_URL, url);
        return environment;
    }

    static Hashtable<String, String> simple(String url, String dn, String password) {
        Hashtable<String, String> environment = environment(url);
        environment.put(Context.SECURITY_AUTHENTICATION, "simple");
        environment.put(Context.SECURITY_PRINCIPAL, dn);
        environment.put(Context.SECURITY_CREDENTIALS, password);
        return environment;
    }

    static void ensure(boolean fine, String what) {
        if (!fine) {
            throw new AssertionError(what);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String plain = arguments[0];
        String secure = arguments[1];

        LdapContext context = new InitialLdapContext(environment(plain), null);
        StartTlsResponse tls = (StartTlsResponse) context.extendedOperation(new StartTlsRequest());
        tls.negotiate();
        context.addToEnvironment(Context.SECURITY_AUTHENTICATION, "simple");
        context.addToEnvironment(Context.SECURITY_PRINCIPAL, ANN);
        context.addToEnvironment(Context.SECURITY_CREDENTIALS, PASSWORD);
        ensure(context.getAttributes(ANN).get("mail").get().equals("ann@example.com"), "mail");
        tls.close();
        context.close();
        System.out.println("simple bind over StartTLS");

        try {
            new InitialLdapContext(simple(secure, ANN, "wrong"), null);
            throw new AssertionError("a wrong password works");
        } catch (AuthenticationException expected) {
            ensure(expected.getMessage().contains("49"), expected.getMessage());
        }
        LdapContext admin = new InitialLdapContext(simple(secure, "cn=admin,dc=example,dc=com", "secret"), null);
        for (int n = 0; n < 25; n++) {
            BasicAttributes entry = new BasicAttributes();
            entry.put(new BasicAttribute("objectClass", "person"));
            entry.put("sn", "x");
            admin.createSubcontext("cn=java" + n + "," + PEOPLE, entry).close();
        }
        System.out.println("simple bind over ldaps");

        int found = 0;
        byte[] cookie = null;
        SearchControls one = new SearchControls();
        do {
            admin.setRequestControls(new Control[] {new PagedResultsControl(10, cookie, Control.CRITICAL)});
            NamingEnumeration<SearchResult> page = admin.search(PEOPLE, "(cn=java*)", one);
            for (; page.hasMore(); found++) {
                page.next();
            }
            cookie = ((PagedResultsResponseControl) admin.getResponseControls()[0]).getCookie();
        } while (cookie != null && cookie.length > 0);
        ensure(found == 25, "found " + found);
        admin.setRequestControls(null);
        for (int n = 0; n < 25; n++) {
            admin.destroySubcontext("cn=java" + n + "," + PEOPLE);
        }
        System.out.println("adds, pages and deletes");
    }
}
